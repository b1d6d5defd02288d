INSERT INTO approvals VALUES ('01MCC5RREZ0TN1PZR8YSRP6D9F', '01MCC5RR11EHPKK5STSQP6CR52', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', 'call', '{"request_id": "01MCC5RR11EHPKK5STSQP6CR52", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "task": ""}', 'waiting', 1800000004.5756428, NULL, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000004.1300883, NULL);
INSERT INTO inbox VALUES ('01MCC5RR11EHPKK5STSQP6CR52', 'telegram:chat:-3200', '3001', 1800000004.1300883, 1800000004.133788, 'in_turn', '01MCC5RR11EHPKK5STSQP6CR52', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000004000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RR11EHPKK5STSQP6CR52"}', NULL);
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RR11EHPKK5STSQP6CR52', 1800000004.1300883);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RR11EHPKK5STSQP6CR52', 1800000004.1300883);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000004000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RR11EHPKK5STSQP6CR52","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RR5XAJ9MNSSP7JTT7JQ4.jsonl', CAST('{"v":1,"uuid":"01MCC5RR607Z5JC1SBE6G1CVA4","parentUuid":null,"type":"turn_start","ts":1800000004288,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RR5XAJ9MNSSP7JTT7JQ4","requestId":"01MCC5RR11EHPKK5STSQP6CR52","data":{"frame":{"model":"claude-sonnet-5-5","digest":"40ff90af7bc6396d","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RR6QZK8QF4MZRASEDJ13","parentUuid":null,"type":"user","ts":1800000004311,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RR5XAJ9MNSSP7JTT7JQ4","requestId":"01MCC5RR11EHPKK5STSQP6CR52","message":{"role":"user","content":[{"type":"text","text":"<turn_context-68781f02>{\"requestId\": \"01MCC5RR11EHPKK5STSQP6CR52\", \"time\": \"2027-01-15T08:00:04Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-68781f02>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RR5XAJ9MNSSP7JTT7JQ4.jsonl', CAST('{"v":1,"uuid":"01MCC5RRCDA8A9PVE0P174NMD5","parentUuid":"01MCC5RR6QZK8QF4MZRASEDJ13","type":"assistant","ts":1800000004493,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RR5XAJ9MNSSP7JTT7JQ4","requestId":"01MCC5RR11EHPKK5STSQP6CR52","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2491},"costUsd":0.0063975}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000003.5297043);
INSERT INTO outbox VALUES ('01MCC5RRF56E3D4579GGEY5KWE', '01MCC5RREZ0TN1PZR8YSRP6D9F', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.
Operators can decide within 30 minutes.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000004.5817966, 1800000004.6328366, '01MCC5RREZ0TN1PZR8YSRP6D9F', '["once", "chat", "always", "deny"]', 'en', NULL, 'UTC', 0, NULL, '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.

Asked in the group -3200.', 0);
INSERT INTO outbox VALUES ('01MCC5RRHWCC7GCA4Q3V4CQ5TE', '01MCC5RREZ0TN1PZR8YSRP6D9F', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'For this I need a yes from an operator.
I''ve asked, and wait for up to 30 minutes.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000004.6686754, 1800000005.4621959, '01MCC5RREZ0TN1PZR8YSRP6D9F', '[]', 'en', NULL, 'UTC', 0, NULL, 'For this I need a yes from an operator.', 0);
INSERT INTO steps VALUES ('01MCC5RR11EHPKK5STSQP6CR52', '01MCC5RR6QZK8QF4MZRASEDJ14', 'model', 'claude-sonnet-5-5', 1800000004.3119943, 1800000004.559791, '{"uuid": "01MCC5RRCDA8A9PVE0P174NMD5", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2491}, "costUsd": 0.0063975, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RR11EHPKK5STSQP6CR52', 'telegram:chat:-3200', 'suspended', 1800000004.133788, NULL);
