INSERT INTO approvals VALUES ('01MCC5RMN7V0QT5H16DGNNQN8Q', '01MCC5RMFVM98FR2VVVZF95B4Z', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', 'call', '{"request_id": "01MCC5RMFVM98FR2VVVZF95B4Z", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "task": ""}', 'approved', 1800000000.6792953, 'telegram:3009', 'Person 3009', 'once', 1800000006.7796402);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.5076451, NULL);
INSERT INTO chats VALUES ('telegram:chat:3009', 1800000002.588096, NULL);
INSERT INTO inbox VALUES ('01MCC5RMFVM98FR2VVVZF95B4Z', 'telegram:chat:-3200', '3001', 1800000000.5076451, 1800000000.5243785, 'in_turn', '01MCC5RMFVM98FR2VVVZF95B4Z', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RMFVM98FR2VVVZF95B4Z"}');
INSERT INTO inbox VALUES ('01MCC5RPGVAMMVCJE59AF9ZKYH', 'telegram:chat:3009', '3009', 1800000002.588096, 1800000002.588096, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "3009", "chatKey": "telegram:chat:3009", "chatType": "direct", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000002569, "target": {"chat_id": "3009", "press": "9000"}, "kind": "message", "addressed": "command", "toOthers": false, "text": "", "command": {"name": "approve", "args": "01MCC5RMN7V0QT5H16DGNNQN8Q once"}, "messageId": null, "userName": "Person 3009", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RPGVAMMVCJE59AF9ZKYH"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RMFVM98FR2VVVZF95B4Z', 1800000000.5076451);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RPGVAMMVCJE59AF9ZKYH', 1800000002.588096);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMFVM98FR2VVVZF95B4Z', 1800000000.5076451);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RPGVAMMVCJE59AF9ZKYH', 1800000002.588096);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RMFVM98FR2VVVZF95B4Z","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RMK0TAF8KJHCWV0ZYRPE.jsonl', CAST('{"v":1,"uuid":"01MCC5RMK3H1ENBQNMQV836D75","parentUuid":null,"type":"turn_start","ts":1800000000611,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMK0TAF8KJHCWV0ZYRPE","requestId":"01MCC5RMFVM98FR2VVVZF95B4Z","data":{"frame":{"model":"claude-sonnet-5-5","digest":"f5e75fb02c516706","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RMK3PAT5JCD23K4MJK5J","parentUuid":null,"type":"user","ts":1800000000611,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMK0TAF8KJHCWV0ZYRPE","requestId":"01MCC5RMFVM98FR2VVVZF95B4Z","message":{"role":"user","content":[{"type":"text","text":"<turn_context-3811f630>{\"requestId\": \"01MCC5RMFVM98FR2VVVZF95B4Z\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-3811f630>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RMK0TAF8KJHCWV0ZYRPE.jsonl', CAST('{"v":1,"uuid":"01MCC5RMKANQ9T7S15M2BAX8J0","parentUuid":"01MCC5RMK3PAT5JCD23K4MJK5J","type":"assistant","ts":1800000000618,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMK0TAF8KJHCWV0ZYRPE","requestId":"01MCC5RMFVM98FR2VVVZF95B4Z","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2488},"costUsd":0.00639}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.3036096);
INSERT INTO outbox VALUES ('01MCC5RMNTB7RMX3TRSZ2GF7S8', '01MCC5RMN7V0QT5H16DGNNQN8Q', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.
Operators can decide within 30 minutes.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.698636, 1800000000.7323797, '01MCC5RMN7V0QT5H16DGNNQN8Q', '["once", "chat", "always", "deny"]', 'en', NULL, 'UTC', 0, NULL, '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.

Asked in the group -3200.');
INSERT INTO outbox VALUES ('01MCC5RMS4DYS249TF7PDSDZEE', '01MCC5RMN7V0QT5H16DGNNQN8Q', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'For this I need a yes from an operator.
I''ve asked, and wait for up to 30 minutes.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.8049767, 1800000001.075785, '01MCC5RMN7V0QT5H16DGNNQN8Q', '[]', 'en', NULL, 'UTC', 0, NULL, 'For this I need a yes from an operator.');
INSERT INTO steps VALUES ('01MCC5RMFVM98FR2VVVZF95B4Z', '01MCC5RMK4ER81E843NXKH68K5', 'model', 'claude-sonnet-5-5', 1800000000.6124208, 1800000000.6677945, '{"uuid": "01MCC5RMKANQ9T7S15M2BAX8J0", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2488}, "costUsd": 0.00639, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMFVM98FR2VVVZF95B4Z', 'telegram:chat:-3200', 'suspended', 1800000000.5243785, NULL);
