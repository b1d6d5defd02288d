INSERT INTO approvals VALUES ('01MCC5RMDMC582E6C17R3N9DEB', '01MCC5RM95Q4SNKEAQCN2PB612', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM95Q4SNKEAQCN2PB612", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000000.4368536, 'approved', 'telegram:3009', 'once', 1800000000.5416923);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.2933276);
INSERT INTO inbox VALUES ('01MCC5RM95Q4SNKEAQCN2PB612', 'telegram:chat:-3200', '3001', 1800000000.2933276, 1800000000.307651, 'in_turn', '01MCC5RM95Q4SNKEAQCN2PB612', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM95Q4SNKEAQCN2PB612"}');
INSERT INTO inbox VALUES ('01MCC5RMG496W9E7J9M96777P2', 'telegram:chat:-3200', '3009', 1800000000.5163047, 1800000000.5163047, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000000515, "target": {"chat_id": "-3200", "press": "9000"}, "kind": "message", "addressed": "command", "text": "", "command": {"name": "approve", "args": "01MCC5RMDMC582E6C17R3N9DEB once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMG496W9E7J9M96777P2"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM95Q4SNKEAQCN2PB612', 1800000000.2933276);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RMG496W9E7J9M96777P2', 1800000000.5163047);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM95Q4SNKEAQCN2PB612', 1800000000.2933276);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RMG496W9E7J9M96777P2', 1800000000.5163047);
INSERT INTO lost VALUES (1, 'gone', 1800000000.2727177);
INSERT INTO outbox VALUES ('01MCC5RME64T34YCDAZRG25KVY', '01MCC5RMDMC582E6C17R3N9DEB', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve 3N9DEB or deny 3N9DEB (as commands), within 30 minutes. approve 3N9DEB chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.454509, 1800000000.4744167, '01MCC5RMDMC582E6C17R3N9DEB', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RME6XNWWHJF1R4J5JPD9', '01MCC5RMDMC582E6C17R3N9DEB', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve 3N9DEB or deny 3N9DEB (as commands), within 30 minutes. approve 3N9DEB chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.4545765, 1800000000.5011306, '01MCC5RMDMC582E6C17R3N9DEB', '["once", "chat", "always", "deny"]');
INSERT INTO steps VALUES ('01MCC5RM95Q4SNKEAQCN2PB612', '01MCC5RM9PK3TQSC9D1ZXMD9A1', 'model', 'claude-sonnet-5-5', 1800000000.3108318, 1800000000.3896103, '{"uuid": "01MCC5RMAWMCA11ST2DXAD0SPV", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2322}, "costUsd": 0.005975, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM95Q4SNKEAQCN2PB612', 'telegram:chat:-3200', 'suspended', 1800000000.307651, NULL);
