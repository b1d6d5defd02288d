INSERT INTO approvals VALUES ('01MCC5RMWE8R6NKXMAZMD3X94T', '01MCC5RMP8GYC2XT175VK8WB06', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RMP8GYC2XT175VK8WB06", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false}', 1800000000.91092, 'approved', 'telegram:3009', 'once', 1800000001.2551193);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.7125967, NULL);
INSERT INTO inbox VALUES ('01MCC5RMP8GYC2XT175VK8WB06', 'telegram:chat:-3200', '3001', 1800000000.7125967, 1800000000.7161944, 'in_turn', '01MCC5RMP8GYC2XT175VK8WB06', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMP8GYC2XT175VK8WB06"}');
INSERT INTO inbox VALUES ('01MCC5RN3HMN0KPY8FFJBZWF0R', 'telegram:chat:-3200', '3009', 1800000001.1375031, 1800000001.1375031, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000001137, "target": {"chat_id": "-3200", "press": "9000"}, "kind": "message", "addressed": "command", "toOthers": false, "text": "", "command": {"name": "approve", "args": "01MCC5RMWE8R6NKXMAZMD3X94T once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RN3HMN0KPY8FFJBZWF0R"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RMP8GYC2XT175VK8WB06', 1800000000.7125967);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RN3HMN0KPY8FFJBZWF0R', 1800000001.1375031);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMP8GYC2XT175VK8WB06', 1800000000.7125967);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RN3HMN0KPY8FFJBZWF0R', 1800000001.1375031);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RMP8GYC2XT175VK8WB06","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RMPDF0WW94MEKG7ADDDC.jsonl', CAST('{"v":1,"uuid":"01MCC5RMPQGCNRV10JW85M4TTJ","parentUuid":null,"type":"turn_start","ts":1800000000727,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMPDF0WW94MEKG7ADDDC","requestId":"01MCC5RMP8GYC2XT175VK8WB06","data":{"frame":{"model":"claude-sonnet-5-5","digest":"09daedb5a7b716f1","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RMPQN1CWHC58EDPPPNBG","parentUuid":null,"type":"user","ts":1800000000727,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMPDF0WW94MEKG7ADDDC","requestId":"01MCC5RMP8GYC2XT175VK8WB06","message":{"role":"user","content":[{"type":"text","text":"<turn_context-d8c6fc50>{\"requestId\": \"01MCC5RMP8GYC2XT175VK8WB06\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-d8c6fc50>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RMPDF0WW94MEKG7ADDDC.jsonl', CAST('{"v":1,"uuid":"01MCC5RMRFS5T1MS686PY4PQRX","parentUuid":"01MCC5RMPQN1CWHC58EDPPPNBG","type":"assistant","ts":1800000000783,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMPDF0WW94MEKG7ADDDC","requestId":"01MCC5RMP8GYC2XT175VK8WB06","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2395},"costUsd":0.0061575}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.289156);
INSERT INTO outbox VALUES ('01MCC5RMXMSHQDR15S929X6BZP', '01MCC5RMWE8R6NKXMAZMD3X94T', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve D3X94T or deny D3X94T (as commands), within 30 minutes. approve D3X94T chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.9486785, 1800000001.0793762, '01MCC5RMWE8R6NKXMAZMD3X94T', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RMXMSHQDR15S929X6BZQ', '01MCC5RMWE8R6NKXMAZMD3X94T', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve D3X94T or deny D3X94T (as commands), within 30 minutes. approve D3X94T chat allows exactly this for this chat; always is for operators.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.9487464, 1800000001.0876055, '01MCC5RMWE8R6NKXMAZMD3X94T', '["once", "chat", "always", "deny"]');
INSERT INTO steps VALUES ('01MCC5RMP8GYC2XT175VK8WB06', '01MCC5RMPQN1CWHC58EDPPPNBH', 'model', 'claude-sonnet-5-5', 1800000000.7276986, 1800000000.8566837, '{"uuid": "01MCC5RMRFS5T1MS686PY4PQRX", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2395}, "costUsd": 0.0061575, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMP8GYC2XT175VK8WB06', 'telegram:chat:-3200', 'suspended', 1800000000.7161944, NULL);
