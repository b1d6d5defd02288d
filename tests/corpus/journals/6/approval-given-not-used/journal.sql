INSERT INTO approvals VALUES ('01MCC5RNMH5H9BXQM4GCHQF534', '01MCC5RNE6W09K4H6EJ4806H46', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RNE6W09K4H6EJ4806H46", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000001.6811252, 'approved', 'telegram:3009', 'once', 1800000001.935181);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000001.4788597);
INSERT INTO inbox VALUES ('01MCC5RNE6W09K4H6EJ4806H46', 'telegram:chat:-3200', '3001', 1800000001.4788597, 1800000001.493748, 'claimed', NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000001000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RNE6W09K4H6EJ4806H46"}', '1');
INSERT INTO inbox VALUES ('01MCC5RNSG8YM1VY48KKYQPGJM', 'telegram:chat:-3200', '3009', 1800000001.8410823, 1800000001.9034905, 'claimed', NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000001840, "target": {"chat_id": "-3200", "press": "9000"}, "kind": "message", "addressed": "command", "text": "", "command": {"name": "approve", "args": "01MCC5RNMH5H9BXQM4GCHQF534 once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RNSG8YM1VY48KKYQPGJM"}', NULL);
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RNE6W09K4H6EJ4806H46', 1800000001.4788597);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RNSG8YM1VY48KKYQPGJM', 1800000001.8410823);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RNE6W09K4H6EJ4806H46', 1800000001.4788597);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RNSG8YM1VY48KKYQPGJM', 1800000001.8410823);
INSERT INTO lost VALUES (1, 'gone', 1800000001.0296319);
INSERT INTO outbox VALUES ('01MCC5RNMQQYJ6579XGPJ88Y21', '01MCC5RNMH5H9BXQM4GCHQF534', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1", "approval": "01MCC5RNMH5H9BXQM4GCHQF534", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve HQF534 or deny HQF534 (as commands), within 30 minutes. approve HQF534 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.6879482, 1800000001.7093318);
INSERT INTO outbox VALUES ('01MCC5RNMQQYJ6579XGPJ88Y22', '01MCC5RNMH5H9BXQM4GCHQF534', 'telegram:chat:3009', '{"chat_id": "3009", "approval": "01MCC5RNMH5H9BXQM4GCHQF534", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve HQF534 or deny HQF534 (as commands), within 30 minutes. approve HQF534 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.6880531, 1800000001.7157);
INSERT INTO steps VALUES ('01MCC5RNE6W09K4H6EJ4806H46', '01MCC5RNJCQET11YC2GYE6WSGY', 'model', 'claude-sonnet-5-5', 1800000001.6128836, 1800000001.6750493, '{"uuid": "01MCC5RNK1KAXS66WJQFJT5706", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2608}, "costUsd": 0.00669, "providerRequestId": "req_000000000000000000000003"}');
