INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.1524267, NULL);
INSERT INTO inbox VALUES ('01MCC5RM4R419K1924W5ATY65G', 'telegram:chat:3001', '3001', 1800000000.1524267, 1800000000.1607957, 'in_turn', '01MCC5RM4R419K1924W5ATY65G', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RM4R419K1924W5ATY65G"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM4R419K1924W5ATY65G', 1800000000.1524267);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM4R419K1924W5ATY65G', 1800000000.1524267);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A3001', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"3001","chatKey":"telegram:chat:3001","userId":"3001","messageId":"1","role":"user","text":"a long question 长","meta":{"requestId":"01MCC5RM4R419K1924W5ATY65G","chatType":"direct","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A3001/01MCC5RM5RF87QWKZS229PWA0Q.jsonl', CAST('{"v":1,"uuid":"01MCC5RM5W9FV2A1MFCSP244TG","parentUuid":null,"type":"turn_start","ts":1800000000188,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM5RF87QWKZS229PWA0Q","requestId":"01MCC5RM4R419K1924W5ATY65G","data":{"frame":{"model":"claude-sonnet-5-5","digest":"9d7f20fc073f4657","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RM5WF96RTYC4VWAMEGYJ","parentUuid":null,"type":"user","ts":1800000000188,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM5RF87QWKZS229PWA0Q","requestId":"01MCC5RM4R419K1924W5ATY65G","message":{"role":"user","content":[{"type":"text","text":"<turn_context-2f2794d0>{\"requestId\": \"01MCC5RM4R419K1924W5ATY65G\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-2f2794d0>"},{"type":"text","text":"a long question 长"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A3001/01MCC5RM5RF87QWKZS229PWA0Q.jsonl', CAST('{"v":1,"uuid":"01MCC5RMBE8VWH33RJP42X42XY","parentUuid":"01MCC5RM5WF96RTYC4VWAMEGYJ","type":"assistant","ts":1800000000366,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM5RF87QWKZS229PWA0Q","requestId":"01MCC5RM4R419K1924W5ATY65G","message":{"role":"assistant","content":[{"type":"text","text":"answer to a long question 长\n\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one."}],"origin":["3001"]},"data":{"stopReason":"end_turn","usage":{"inputTokens":0,"outputTokens":1072,"cacheReadTokens":0,"cacheWriteTokens":2487},"costUsd":0.0169375}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.0953746);
INSERT INTO outbox VALUES ('01MCC5RMBZVXVAQ4684ZHMKNDD', '01MCC5RM4R419K1924W5ATY65G', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

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
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.3840134, 1800000000.3935306, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL);
INSERT INTO outbox VALUES ('01MCC5RMBZVXVAQ4684ZHMKNDE', '01MCC5RM4R419K1924W5ATY65G', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.3840134, 1800000000.3948102, NULL, NULL, 'en', NULL, 'UTC', 0, '01MCC5RMBZVXVAQ4684ZHMKNDD', NULL);
INSERT INTO steps VALUES ('01MCC5RM4R419K1924W5ATY65G', '01MCC5RM5XR99JY80M4TERXDCD', 'model', 'claude-sonnet-5-5', 1800000000.1891894, 1800000000.39358, '{"uuid": "01MCC5RMBE8VWH33RJP42X42XY", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 1072, "cacheReadTokens": 0, "cacheWriteTokens": 2487}, "costUsd": 0.0169375, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM4R419K1924W5ATY65G', 'telegram:chat:3001', 'running', 1800000000.1607957, NULL);
