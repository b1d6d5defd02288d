INSERT INTO approvals VALUES ('01MCC5RMFCWZT6VAXVZ0BA2AJX', '01MCC5RMA2SPCV2TYS5JXW8A9X', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RMA2SPCV2TYS5JXW8A9X", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000000.493097, 'approved', 'telegram:3009', 'once', 1800000000.5870123);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.32261);
INSERT INTO inbox VALUES ('01MCC5RMA2SPCV2TYS5JXW8A9X', 'telegram:chat:-3200', '3001', 1800000000.32261, 1800000000.3833895, 'in_turn', '01MCC5RMA2SPCV2TYS5JXW8A9X', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMA2SPCV2TYS5JXW8A9X"}');
INSERT INTO inbox VALUES ('01MCC5RMHHT6E6DVYRSDYKK2ZN', 'telegram:chat:-3200', '3009', 1800000000.5618722, 1800000000.5618722, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000000561, "target": {"chat_id": "-3200", "press": "9000"}, "kind": "message", "addressed": "command", "text": "", "command": {"name": "approve", "args": "01MCC5RMFCWZT6VAXVZ0BA2AJX once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMHHT6E6DVYRSDYKK2ZN"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RMA2SPCV2TYS5JXW8A9X', 1800000000.32261);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RMHHT6E6DVYRSDYKK2ZN', 1800000000.5618722);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMA2SPCV2TYS5JXW8A9X', 1800000000.32261);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RMHHT6E6DVYRSDYKK2ZN', 1800000000.5618722);
INSERT INTO lost VALUES (1, 'gone', 1800000000.2817755);
INSERT INTO outbox VALUES ('01MCC5RMG4691PCNJJ1Q68E5XX', '01MCC5RMFCWZT6VAXVZ0BA2AJX', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1", "approval": "01MCC5RMFCWZT6VAXVZ0BA2AJX", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve BA2AJX or deny BA2AJX (as commands), within 30 minutes. approve BA2AJX chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.517258, 1800000000.5388503);
INSERT INTO outbox VALUES ('01MCC5RMG5BNK5MX356X5ARM26', '01MCC5RMFCWZT6VAXVZ0BA2AJX', 'telegram:chat:3009', '{"chat_id": "3009", "approval": "01MCC5RMFCWZT6VAXVZ0BA2AJX", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve BA2AJX or deny BA2AJX (as commands), within 30 minutes. approve BA2AJX chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.5175285, 1800000000.5405085);
INSERT INTO steps VALUES ('01MCC5RMA2SPCV2TYS5JXW8A9X', '01MCC5RMDMJMGWT4V431QBB5JJ', 'model', 'claude-sonnet-5-5', 1800000000.4369488, 1800000000.484098, '{"uuid": "01MCC5RMENZYW9FWMERGZ8R8EJ", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2608}, "costUsd": 0.00669, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO turns VALUES ('01MCC5RMA2SPCV2TYS5JXW8A9X', 'telegram:chat:-3200', 'suspended', 1800000000.3833895, NULL);
