INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.718184, NULL);
INSERT INTO inbox VALUES ('01MCC5RMPEC77JE06YDBRQ2ZFY', 'telegram:chat:3001', '3001', 1800000000.718184, 1800000000.7785993, 'in_turn', '01MCC5RMPEC77JE06YDBRQ2ZFY', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a very long question", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RMPEC77JE06YDBRQ2ZFY"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMPEC77JE06YDBRQ2ZFY', 1800000000.718184);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMPEC77JE06YDBRQ2ZFY', 1800000000.718184);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A3001', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"3001","chatKey":"telegram:chat:3001","userId":"3001","messageId":"1","role":"user","text":"a very long question","meta":{"requestId":"01MCC5RMPEC77JE06YDBRQ2ZFY","chatType":"direct","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A3001/01MCC5RMRDAC3RK66V1VKEHJQZ.jsonl', CAST('{"v":1,"uuid":"01MCC5RMRNB6Q9RAS0RP0Y89JR","parentUuid":null,"type":"turn_start","ts":1800000000789,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMRDAC3RK66V1VKEHJQZ","requestId":"01MCC5RMPEC77JE06YDBRQ2ZFY","data":{"frame":{"model":"claude-sonnet-5-5","digest":"83a88f8988770fb0","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RMRNNVXJSA1D2PP43AZB","parentUuid":null,"type":"user","ts":1800000000789,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMRDAC3RK66V1VKEHJQZ","requestId":"01MCC5RMPEC77JE06YDBRQ2ZFY","message":{"role":"user","content":[{"type":"text","text":"<turn_context-0c8528f8>{\"requestId\": \"01MCC5RMPEC77JE06YDBRQ2ZFY\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-0c8528f8>"},{"type":"text","text":"a very long question"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A3001/01MCC5RMRDAC3RK66V1VKEHJQZ.jsonl', CAST('{"v":1,"uuid":"01MCC5RN4RQ23QAVVEG19VSMT3","parentUuid":"01MCC5RMRNNVXJSA1D2PP43AZB","type":"assistant","ts":1800000001176,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMRDAC3RK66V1VKEHJQZ","requestId":"01MCC5RMPEC77JE06YDBRQ2ZFY","message":{"role":"assistant","content":[{"type":"text","text":"answer to a very long question\n\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one."}],"origin":["3001"]},"data":{"stopReason":"end_turn","usage":{"inputTokens":0,"outputTokens":2128,"cacheReadTokens":0,"cacheWriteTokens":2403},"costUsd":0.0272875}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.5122888);
INSERT INTO outbox VALUES ('01MCC5RPG6GM89C2HFMWZQY07C', '01MCC5RMPEC77JE06YDBRQ2ZFY', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a very long question

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.567117, 1800000002.5737734, NULL, NULL, 'en', NULL, 'UTC');
INSERT INTO outbox VALUES ('01MCC5RPG6GM89C2HFMWZQY07D', '01MCC5RMPEC77JE06YDBRQ2ZFY', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'ready', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.567117, 1800000002.567117, NULL, NULL, 'en', NULL, 'UTC');
INSERT INTO outbox VALUES ('01MCC5RPG6GM89C2HFMWZQY07E', '01MCC5RMPEC77JE06YDBRQ2ZFY', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'ready', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.567117, 1800000002.567117, NULL, NULL, 'en', NULL, 'UTC');
INSERT INTO steps VALUES ('01MCC5RMPEC77JE06YDBRQ2ZFY', '01MCC5RMRNNVXJSA1D2PP43AZC', 'model', 'claude-sonnet-5-5', 1800000000.7896087, 1800000001.5395694, '{"uuid": "01MCC5RN4RQ23QAVVEG19VSMT3", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 2128, "cacheReadTokens": 0, "cacheWriteTokens": 2403}, "costUsd": 0.0272875, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMPEC77JE06YDBRQ2ZFY', 'telegram:chat:3001', 'running', 1800000000.7785993, NULL);
