INSERT INTO approvals VALUES ('01MCC5RNF7CD3P8PDVFR89060W', '01MCC5RN0R6HHKSCTPAR2FY1P8', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RN0R6HHKSCTPAR2FY1P8", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false, "task": ""}', 1800000001.5115488, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000001.0487168, NULL);
INSERT INTO inbox VALUES ('01MCC5RN0R6HHKSCTPAR2FY1P8', 'telegram:chat:-3200', '3001', 1800000001.0487168, 1800000001.103625, 'in_turn', '01MCC5RN0R6HHKSCTPAR2FY1P8', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000001000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RN0R6HHKSCTPAR2FY1P8"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RN0R6HHKSCTPAR2FY1P8', 1800000001.0487168);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RN0R6HHKSCTPAR2FY1P8', 1800000001.0487168);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000001000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RN0R6HHKSCTPAR2FY1P8","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RN7KSHYMXNSVX967VBDV.jsonl', CAST('{"v":1,"uuid":"01MCC5RN9AGD915RSK44R42S64","parentUuid":null,"type":"turn_start","ts":1800000001322,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RN7KSHYMXNSVX967VBDV","requestId":"01MCC5RN0R6HHKSCTPAR2FY1P8","data":{"frame":{"model":"claude-sonnet-5-5","digest":"11f9b9f8c8bee879","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RN9AGD915RSK44R42S65","parentUuid":null,"type":"user","ts":1800000001322,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RN7KSHYMXNSVX967VBDV","requestId":"01MCC5RN0R6HHKSCTPAR2FY1P8","message":{"role":"user","content":[{"type":"text","text":"<turn_context-67c36604>{\"requestId\": \"01MCC5RN0R6HHKSCTPAR2FY1P8\", \"time\": \"2027-01-15T08:00:01Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-67c36604>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RN7KSHYMXNSVX967VBDV.jsonl', CAST('{"v":1,"uuid":"01MCC5RN9G4H7M8X8J5BTX8Z9Z","parentUuid":"01MCC5RN9AGD915RSK44R42S65","type":"assistant","ts":1800000001328,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RN7KSHYMXNSVX967VBDV","requestId":"01MCC5RN0R6HHKSCTPAR2FY1P8","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2403},"costUsd":0.0061775}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.7145894);
INSERT INTO outbox VALUES ('01MCC5RNH10NRZK560W7ARTNSW', '01MCC5RNF7CD3P8PDVFR89060W', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule wants it. Rule: ask skills_list.
Operators can decide within 30 minutes. Without buttons: approve 89060W or deny 89060W (as commands); approve 89060W chat allows exactly this for this chat.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.5692582, 1800000001.627577, '01MCC5RNF7CD3P8PDVFR89060W', '["once", "chat", "always", "deny"]', 'en');
INSERT INTO outbox VALUES ('01MCC5RNKECFD8NW0N35PXJ3HF', '01MCC5RNF7CD3P8PDVFR89060W', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule wants it. Rule: ask skills_list.
Operators can decide within 30 minutes. Without buttons: approve 89060W or deny 89060W (as commands); approve 89060W chat allows exactly this for this chat.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.6469274, 1800000001.6579645, '01MCC5RNF7CD3P8PDVFR89060W', '[]', 'en');
INSERT INTO steps VALUES ('01MCC5RN0R6HHKSCTPAR2FY1P8', '01MCC5RN9AXGQ4381FVEC78YS8', 'model', 'claude-sonnet-5-5', 1800000001.3228335, 1800000001.487452, '{"uuid": "01MCC5RN9G4H7M8X8J5BTX8Z9Z", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2403}, "costUsd": 0.0061775, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RN0R6HHKSCTPAR2FY1P8', 'telegram:chat:-3200', 'suspended', 1800000001.103625, NULL);
