INSERT INTO approvals VALUES ('01MCC5RP5FNHS3VN1NFV2PXEM3', '01MCC5RNA539NRSTQ62Z1TTVZR', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RNA539NRSTQ62Z1TTVZR", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false, "task": ""}', 1800000002.2238774, 'approved', 'telegram:3009', 'once', 1800000002.8383749);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000001.349901, NULL);
INSERT INTO chats VALUES ('telegram:chat:3009', 1800000002.6002192, NULL);
INSERT INTO inbox VALUES ('01MCC5RNA539NRSTQ62Z1TTVZR', 'telegram:chat:-3200', '3001', 1800000001.349901, 1800000001.3755643, 'in_turn', '01MCC5RNA539NRSTQ62Z1TTVZR', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000001000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RNA539NRSTQ62Z1TTVZR"}');
INSERT INTO inbox VALUES ('01MCC5RPH8J4SEZKWGNXND21X7', 'telegram:chat:3009', '3009', 1800000002.6002192, 1800000002.6002192, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "3009", "chatKey": "telegram:chat:3009", "chatType": "direct", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000002599, "target": {"chat_id": "3009", "press": "9000"}, "kind": "message", "addressed": "command", "toOthers": false, "text": "", "command": {"name": "approve", "args": "01MCC5RP5FNHS3VN1NFV2PXEM3 once"}, "messageId": null, "userName": null, "language": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RPH8J4SEZKWGNXND21X7"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RNA539NRSTQ62Z1TTVZR', 1800000001.349901);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RPH8J4SEZKWGNXND21X7', 1800000002.6002192);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RNA539NRSTQ62Z1TTVZR', 1800000001.349901);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RPH8J4SEZKWGNXND21X7', 1800000002.6002192);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000001000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RNA539NRSTQ62Z1TTVZR","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RNDSSFEDYPZ1YYND2FPG.jsonl', CAST('{"v":1,"uuid":"01MCC5RNE1G4HF1B8N8V3VA86W","parentUuid":null,"type":"turn_start","ts":1800000001473,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNDSSFEDYPZ1YYND2FPG","requestId":"01MCC5RNA539NRSTQ62Z1TTVZR","data":{"frame":{"model":"claude-sonnet-5-5","digest":"668360344689d07a","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RNE1J3YB0XFJQJWFWZH6","parentUuid":null,"type":"user","ts":1800000001473,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNDSSFEDYPZ1YYND2FPG","requestId":"01MCC5RNA539NRSTQ62Z1TTVZR","message":{"role":"user","content":[{"type":"text","text":"<turn_context-e1e6d846>{\"requestId\": \"01MCC5RNA539NRSTQ62Z1TTVZR\", \"time\": \"2027-01-15T08:00:01Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-e1e6d846>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RNDSSFEDYPZ1YYND2FPG.jsonl', CAST('{"v":1,"uuid":"01MCC5RNQNSZ5KSW0G0FEQYWB0","parentUuid":"01MCC5RNE1J3YB0XFJQJWFWZH6","type":"assistant","ts":1800000001781,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNDSSFEDYPZ1YYND2FPG","requestId":"01MCC5RNA539NRSTQ62Z1TTVZR","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2403},"costUsd":0.0061775}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.6393864);
INSERT INTO outbox VALUES ('01MCC5RP7BWXNJJ0ZFRT6C6VTY', '01MCC5RP5FNHS3VN1NFV2PXEM3', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule wants it. Rule: ask skills_list.
Operators can decide within 30 minutes. Without buttons: approve 2PXEM3 or deny 2PXEM3 (as commands); approve 2PXEM3 chat allows exactly this for this chat.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.2839713, 1800000002.3449502, '01MCC5RP5FNHS3VN1NFV2PXEM3', '["once", "chat", "always", "deny"]', 'en');
INSERT INTO outbox VALUES ('01MCC5RPEK8GDYHPZB4AWTZK72', '01MCC5RP5FNHS3VN1NFV2PXEM3', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule wants it. Rule: ask skills_list.
Operators can decide within 30 minutes. Without buttons: approve 2PXEM3 or deny 2PXEM3 (as commands); approve 2PXEM3 chat allows exactly this for this chat.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.515805, 1800000002.5500064, '01MCC5RP5FNHS3VN1NFV2PXEM3', '[]', 'en');
INSERT INTO steps VALUES ('01MCC5RNA539NRSTQ62Z1TTVZR', '01MCC5RNE1J3YB0XFJQJWFWZH7', 'model', 'claude-sonnet-5-5', 1800000001.4735103, 1800000002.0545077, '{"uuid": "01MCC5RNQNSZ5KSW0G0FEQYWB0", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2403}, "costUsd": 0.0061775, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RNA539NRSTQ62Z1TTVZR', 'telegram:chat:-3200', 'suspended', 1800000001.3755643, NULL);
