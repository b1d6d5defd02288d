INSERT INTO approvals VALUES ('01MCC5RM8DAP7JYWKQT3QKQ58B', '01MCC5RM5NN43MHF7RBSRPNK7X', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM5NN43MHF7RBSRPNK7X", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false}', 1800000000.2694106, 'approved', 'telegram:3009', 'once', 1800000000.395777);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.1819525, NULL);
INSERT INTO chats VALUES ('telegram:chat:3009', 1800000000.3887525, NULL);
INSERT INTO inbox VALUES ('01MCC5RM5NN43MHF7RBSRPNK7X', 'telegram:chat:-3200', '3001', 1800000000.1819525, 1800000000.183007, 'in_turn', '01MCC5RM5NN43MHF7RBSRPNK7X', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM5NN43MHF7RBSRPNK7X"}');
INSERT INTO inbox VALUES ('01MCC5RMC4183T5TCQ4XV3QNAT', 'telegram:chat:3009', '3009', 1800000000.3887525, 1800000000.3887525, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "3009", "chatKey": "telegram:chat:3009", "chatType": "direct", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000000388, "target": {"chat_id": "3009", "press": "9000"}, "kind": "message", "addressed": "command", "toOthers": false, "text": "", "command": {"name": "approve", "args": "01MCC5RM8DAP7JYWKQT3QKQ58B once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMC4183T5TCQ4XV3QNAT"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM5NN43MHF7RBSRPNK7X', 1800000000.1819525);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RMC4183T5TCQ4XV3QNAT', 1800000000.3887525);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM5NN43MHF7RBSRPNK7X', 1800000000.1819525);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RMC4183T5TCQ4XV3QNAT', 1800000000.3887525);
INSERT INTO lost VALUES (1, 'gone', 1800000000.1583176);
INSERT INTO outbox VALUES ('01MCC5RM8NFZD6P4RSATEH9DH5', '01MCC5RM8DAP7JYWKQT3QKQ58B', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve QKQ58B or deny QKQ58B (as commands), within 30 minutes. approve QKQ58B chat allows exactly this for this chat; always is for operators.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.2775395, 1800000000.2843008, '01MCC5RM8DAP7JYWKQT3QKQ58B', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RM91JSV055GXRNVRJB9D', '01MCC5RM8DAP7JYWKQT3QKQ58B', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve QKQ58B or deny QKQ58B (as commands), within 30 minutes. approve QKQ58B chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.2891355, 1800000000.3713562, '01MCC5RM8DAP7JYWKQT3QKQ58B', '[]');
INSERT INTO steps VALUES ('01MCC5RM5NN43MHF7RBSRPNK7X', '01MCC5RM6QA9RHDAAZ3D9Z4MP7', 'model', 'claude-sonnet-5-5', 1800000000.2153642, 1800000000.257567, '{"uuid": "01MCC5RM7GKCEC0QW9N6C2W446", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2395}, "costUsd": 0.0061575, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM5NN43MHF7RBSRPNK7X', 'telegram:chat:-3200', 'suspended', 1800000000.183007, NULL);
