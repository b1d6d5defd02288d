INSERT INTO approvals VALUES ('01MCC5RMSP41NKVZ1D59M6CDVW', '01MCC5RMH6XSHTQA5DM3ZBMQAD', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RMH6XSHTQA5DM3ZBMQAD", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000000.8229485, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.5549207);
INSERT INTO inbox VALUES ('01MCC5RMH6XSHTQA5DM3ZBMQAD', 'telegram:chat:-3200', '3001', 1800000000.5549207, 1800000000.5737567, 'in_turn', '01MCC5RMH6XSHTQA5DM3ZBMQAD', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMH6XSHTQA5DM3ZBMQAD"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RMH6XSHTQA5DM3ZBMQAD', 1800000000.5549207);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMH6XSHTQA5DM3ZBMQAD', 1800000000.5549207);
INSERT INTO lost VALUES (1, 'gone', 1800000000.4325025);
INSERT INTO outbox VALUES ('01MCC5RMSTWP81MEZM9335V2TF', '01MCC5RMSP41NKVZ1D59M6CDVW', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1", "approval": "01MCC5RMSP41NKVZ1D59M6CDVW", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve M6CDVW or deny M6CDVW (as commands), within 30 minutes. approve M6CDVW chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.8301709, 1800000000.8532448);
INSERT INTO outbox VALUES ('01MCC5RMSX4S50V3QFFWZD7T4Y', '01MCC5RMSP41NKVZ1D59M6CDVW', 'telegram:chat:3009', '{"chat_id": "3009", "approval": "01MCC5RMSP41NKVZ1D59M6CDVW", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve M6CDVW or deny M6CDVW (as commands), within 30 minutes. approve M6CDVW chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.8304088, 1800000000.8581276);
INSERT INTO steps VALUES ('01MCC5RMH6XSHTQA5DM3ZBMQAD', '01MCC5RMM9WGVPCY1SZKFSJJMX', 'model', 'claude-sonnet-5-5', 1800000000.6496065, 1800000000.8212745, '{"uuid": "01MCC5RMRXJD6T7NF7DZVV33EF", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2608}, "costUsd": 0.00669, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO turns VALUES ('01MCC5RMH6XSHTQA5DM3ZBMQAD', 'telegram:chat:-3200', 'suspended', 1800000000.5737567, NULL);
