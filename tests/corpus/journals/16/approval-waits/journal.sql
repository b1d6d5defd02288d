INSERT INTO approvals VALUES ('01MCC5RMTZQDPJM0YQ3DC579GB', '01MCC5RMNNZV9N6XXCSWBREJ50', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', 'call', '{"request_id": "01MCC5RMNNZV9N6XXCSWBREJ50", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "task": ""}', 'waiting', 1800000000.8632686, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.693724, NULL);
INSERT INTO inbox VALUES ('01MCC5RMNNZV9N6XXCSWBREJ50', 'telegram:chat:-3200', '3001', 1800000000.693724, 1800000000.7113693, 'in_turn', '01MCC5RMNNZV9N6XXCSWBREJ50', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RMNNZV9N6XXCSWBREJ50"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RMNNZV9N6XXCSWBREJ50', 1800000000.693724);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMNNZV9N6XXCSWBREJ50', 1800000000.693724);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RMNNZV9N6XXCSWBREJ50","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RMQQRHEYJTYKGCQRPRCP.jsonl', CAST('{"v":1,"uuid":"01MCC5RMRCR8NN0JHQPZ8V1J8K","parentUuid":null,"type":"turn_start","ts":1800000000780,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMQQRHEYJTYKGCQRPRCP","requestId":"01MCC5RMNNZV9N6XXCSWBREJ50","data":{"frame":{"model":"claude-sonnet-5-5","digest":"b79dbdcd0b0ec2dd","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RMRCR8NN0JHQPZ8V1J8M","parentUuid":null,"type":"user","ts":1800000000780,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMQQRHEYJTYKGCQRPRCP","requestId":"01MCC5RMNNZV9N6XXCSWBREJ50","message":{"role":"user","content":[{"type":"text","text":"<turn_context-9222575e>{\"requestId\": \"01MCC5RMNNZV9N6XXCSWBREJ50\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-9222575e>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RMQQRHEYJTYKGCQRPRCP.jsonl', CAST('{"v":1,"uuid":"01MCC5RMTBFEBK54M87HWRFC4E","parentUuid":"01MCC5RMRCR8NN0JHQPZ8V1J8M","type":"assistant","ts":1800000000843,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMQQRHEYJTYKGCQRPRCP","requestId":"01MCC5RMNNZV9N6XXCSWBREJ50","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2488},"costUsd":0.00639}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.4455984);
INSERT INTO outbox VALUES ('01MCC5RMVPMY1Z7KA6942GXDWP', '01MCC5RMTZQDPJM0YQ3DC579GB', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.
Operators can decide within 30 minutes.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.886898, 1800000000.9152625, '01MCC5RMTZQDPJM0YQ3DC579GB', '["once", "chat", "always", "deny"]', 'en', NULL, 'UTC', 0, NULL, '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.

Asked in the group -3200.');
INSERT INTO outbox VALUES ('01MCC5RMWNMARZEA0RN75EASD2', '01MCC5RMTZQDPJM0YQ3DC579GB', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'For this I need a yes from an operator.
I''ve asked, and wait for up to 30 minutes.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.9179966, 1800000000.9211373, '01MCC5RMTZQDPJM0YQ3DC579GB', '[]', 'en', NULL, 'UTC', 0, NULL, 'For this I need a yes from an operator.');
INSERT INTO steps VALUES ('01MCC5RMNNZV9N6XXCSWBREJ50', '01MCC5RMRDBRB17TBDBC8NSBZR', 'model', 'claude-sonnet-5-5', 1800000000.7815084, 1800000000.8613954, '{"uuid": "01MCC5RMTBFEBK54M87HWRFC4E", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2488}, "costUsd": 0.00639, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMNNZV9N6XXCSWBREJ50', 'telegram:chat:-3200', 'suspended', 1800000000.7113693, NULL);
