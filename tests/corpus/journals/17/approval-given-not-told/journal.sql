INSERT INTO approvals VALUES ('01MCC5RNGY75A17SKPZ8YSF15E', '01MCC5RNFNPK252JAT6FN5G1EC', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', 'call', '{"request_id": "01MCC5RNFNPK252JAT6FN5G1EC", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "task": ""}', 'approved', 1800000001.566323, 'telegram:3009', 'Person 3009', 'once', 1800000001.5933988, '01MCC5RNHPBY86TG9TDVV0KSTN');
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000001.525291, NULL);
INSERT INTO chats VALUES ('telegram:chat:3009', 1800000001.590514, NULL);
INSERT INTO inbox VALUES ('01MCC5RNFNPK252JAT6FN5G1EC', 'telegram:chat:-3200', '3001', 1800000001.525291, 1800000001.527979, 'in_turn', '01MCC5RNFNPK252JAT6FN5G1EC', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000001000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "ofAlbum": false, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RNFNPK252JAT6FN5G1EC"}', NULL);
INSERT INTO inbox VALUES ('01MCC5RNHPBY86TG9TDVV0KSTN', 'telegram:chat:3009', '3009', 1800000001.590514, 1800000001.590514, 'queued', NULL, NULL, NULL, '2', '{"channel": "telegram", "chatId": "3009", "chatKey": "telegram:chat:3009", "chatType": "direct", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:message:3009:2"], "ts": 1800000001000, "target": {"chat_id": "3009"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "/approve YSF15E", "command": {"name": "approve", "args": "YSF15E"}, "messageId": "2", "userName": "Person 3009", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "ofAlbum": false, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RNHPBY86TG9TDVV0KSTN"}', NULL);
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RNFNPK252JAT6FN5G1EC', 1800000001.525291);
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3009:2', '01MCC5RNHPBY86TG9TDVV0KSTN', 1800000001.590514);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RNFNPK252JAT6FN5G1EC', 1800000001.525291);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RNHPBY86TG9TDVV0KSTN', 1800000001.590514);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000001000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RNFNPK252JAT6FN5G1EC","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RNFZ3Z2MF01RS41A9063.jsonl', CAST('{"v":2,"uuid":"01MCC5RNG3Y8W0S9AEER7Y3HS9","parentUuid":null,"type":"turn_start","ts":1800000001539,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNFZ3Z2MF01RS41A9063","requestId":"01MCC5RNFNPK252JAT6FN5G1EC","data":{"frame":{"model":"claude-sonnet-5-5","digest":"26958a2743188472","surroundings":{"projectFolder":"none"}}}}
{"v":2,"uuid":"01MCC5RNG3Y8W0S9AEER7Y3HSA","parentUuid":null,"type":"user","ts":1800000001539,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNFZ3Z2MF01RS41A9063","requestId":"01MCC5RNFNPK252JAT6FN5G1EC","message":{"role":"user","content":[{"type":"text","text":"<turn_context-18bdef55>{\"requestId\": \"01MCC5RNFNPK252JAT6FN5G1EC\", \"time\": \"2027-01-15T08:00:01Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-18bdef55>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RNFZ3Z2MF01RS41A9063.jsonl', CAST('{"v":2,"uuid":"01MCC5RNGFPK12A4EBHC0X3RFF","parentUuid":"01MCC5RNG3Y8W0S9AEER7Y3HSA","type":"assistant","ts":1800000001551,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNFZ3Z2MF01RS41A9063","requestId":"01MCC5RNFNPK252JAT6FN5G1EC","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2488},"costUsd":0.00639}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000001.4357986);
INSERT INTO outbox VALUES ('01MCC5RNH256391REF26ZY9ZEE', '01MCC5RNGY75A17SKPZ8YSF15E', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.
Operators can decide within 30 minutes.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.5706353, 1800000001.5766916, '01MCC5RNGY75A17SKPZ8YSF15E', '["once", "chat", "always", "deny"]', 'en', NULL, 'UTC', 0, NULL, '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.

Asked in the group -3200.', 0);
INSERT INTO outbox VALUES ('01MCC5RNHCNYX96QPSGVYKQ9E7', '01MCC5RNGY75A17SKPZ8YSF15E', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'For this I need a yes from an operator.
I''ve asked, and wait for up to 30 minutes.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.5804799, 1800000001.583867, '01MCC5RNGY75A17SKPZ8YSF15E', '[]', 'en', NULL, 'UTC', 0, NULL, 'For this I need a yes from an operator.', 0);
INSERT INTO steps VALUES ('01MCC5RNFNPK252JAT6FN5G1EC', '01MCC5RNG4G4NX566KQ8X6NK2M', 'model', 'claude-sonnet-5-5', 1800000001.5401669, 1800000001.5654082, '{"uuid": "01MCC5RNGFPK12A4EBHC0X3RFF", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2488}, "costUsd": 0.00639, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RNFNPK252JAT6FN5G1EC', 'telegram:chat:-3200', 'suspended', 1800000001.527979, NULL);
