INSERT INTO approvals VALUES ('01MCC5RM5W5HYWPC78DJADDS96', '01MCC5RM4KG9WZ86XXVS12R7S4', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM4KG9WZ86XXVS12R7S4", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false}', 1800000000.1887057, 'approved', 'telegram:3009', 'once', 1800000000.2326171);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.14735, NULL);
INSERT INTO inbox VALUES ('01MCC5RM4KG9WZ86XXVS12R7S4', 'telegram:chat:-3200', '3001', 1800000000.14735, 1800000000.1522014, 'in_turn', '01MCC5RM4KG9WZ86XXVS12R7S4', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM4KG9WZ86XXVS12R7S4"}');
INSERT INTO inbox VALUES ('01MCC5RM74VDESP7E7X2HCN7VX', 'telegram:chat:-3200', '3009', 1800000000.2287607, 1800000000.2287607, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000000228, "target": {"chat_id": "-3200", "press": "9000"}, "kind": "message", "addressed": "command", "toOthers": false, "text": "", "command": {"name": "approve", "args": "01MCC5RM5W5HYWPC78DJADDS96 once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM74VDESP7E7X2HCN7VX"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM4KG9WZ86XXVS12R7S4', 1800000000.14735);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RM74VDESP7E7X2HCN7VX', 1800000000.2287607);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM4KG9WZ86XXVS12R7S4', 1800000000.14735);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RM74VDESP7E7X2HCN7VX', 1800000000.2287607);
INSERT INTO lost VALUES (1, 'gone', 1800000000.1036832);
INSERT INTO outbox VALUES ('01MCC5RM62R5P873EFTMH6CHPK', '01MCC5RM5W5HYWPC78DJADDS96', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve ADDS96 or deny ADDS96 (as commands), within 30 minutes. approve ADDS96 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.1944172, 1800000000.2018888, '01MCC5RM5W5HYWPC78DJADDS96', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RM62SA9KX18YKKYHE6JN', '01MCC5RM5W5HYWPC78DJADDS96', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve ADDS96 or deny ADDS96 (as commands), within 30 minutes. approve ADDS96 chat allows exactly this for this chat; always is for operators.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.1944797, 1800000000.2080905, '01MCC5RM5W5HYWPC78DJADDS96', '["once", "chat", "always", "deny"]');
INSERT INTO steps VALUES ('01MCC5RM4KG9WZ86XXVS12R7S4', '01MCC5RM578HCF0KEGN294CYSZ', 'model', 'claude-sonnet-5-5', 1800000000.167562, 1800000000.1828313, '{"uuid": "01MCC5RM5MZSPCX0G70YD54QQQ", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2398}, "costUsd": 0.006165, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM4KG9WZ86XXVS12R7S4', 'telegram:chat:-3200', 'suspended', 1800000000.1522014, NULL);
