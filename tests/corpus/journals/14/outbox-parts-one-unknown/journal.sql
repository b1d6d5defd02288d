INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.9038217, NULL);
INSERT INTO inbox VALUES ('01MCC5RMW7P6KP33CM7YBPC2K2', 'telegram:chat:3001', '3001', 1800000000.9038217, 1800000000.9129083, 'in_turn', '01MCC5RMW7P6KP33CM7YBPC2K2', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RMW7P6KP33CM7YBPC2K2"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMW7P6KP33CM7YBPC2K2', 1800000000.9038217);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMW7P6KP33CM7YBPC2K2', 1800000000.9038217);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A3001', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"3001","chatKey":"telegram:chat:3001","userId":"3001","messageId":"1","role":"user","text":"a long question 长","meta":{"requestId":"01MCC5RMW7P6KP33CM7YBPC2K2","chatType":"direct","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A3001/01MCC5RMWME7XWG0WSJ8YP0WEW.jsonl', CAST('{"v":1,"uuid":"01MCC5RMWPFBCV9N0RTQSJPEZR","parentUuid":null,"type":"turn_start","ts":1800000000918,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMWME7XWG0WSJ8YP0WEW","requestId":"01MCC5RMW7P6KP33CM7YBPC2K2","data":{"frame":{"model":"claude-sonnet-5-5","digest":"9a02925085e38edc","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RMWPFBCV9N0RTQSJPEZS","parentUuid":null,"type":"user","ts":1800000000918,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMWME7XWG0WSJ8YP0WEW","requestId":"01MCC5RMW7P6KP33CM7YBPC2K2","message":{"role":"user","content":[{"type":"text","text":"<turn_context-e802f9e6>{\"requestId\": \"01MCC5RMW7P6KP33CM7YBPC2K2\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-e802f9e6>"},{"type":"text","text":"a long question 长"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A3001/01MCC5RMWME7XWG0WSJ8YP0WEW.jsonl', CAST('{"v":1,"uuid":"01MCC5RMZK6D8EQ4VWNP0QEZKR","parentUuid":"01MCC5RMWPFBCV9N0RTQSJPEZS","type":"assistant","ts":1800000001011,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMWME7XWG0WSJ8YP0WEW","requestId":"01MCC5RMW7P6KP33CM7YBPC2K2","message":{"role":"assistant","content":[{"type":"text","text":"answer to a long question 长\n\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one."}],"origin":["3001"]},"data":{"stopReason":"end_turn","usage":{"inputTokens":0,"outputTokens":1072,"cacheReadTokens":0,"cacheWriteTokens":2402},"costUsd":0.016725}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.7272313);
INSERT INTO outbox VALUES ('01MCC5RN1V12G1ACMX2A4PJCTX', '01MCC5RMW7P6KP33CM7YBPC2K2', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

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
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.0835726, 1800000001.123439, NULL, NULL, 'en', NULL, 'UTC');
INSERT INTO outbox VALUES ('01MCC5RN1VJCS1WKF2WQEQM0QR', '01MCC5RMW7P6KP33CM7YBPC2K2', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.0835726, 1800000001.135557, NULL, NULL, 'en', NULL, 'UTC');
INSERT INTO steps VALUES ('01MCC5RMW7P6KP33CM7YBPC2K2', '01MCC5RMWPFBCV9N0RTQSJPEZT', 'model', 'claude-sonnet-5-5', 1800000000.9187162, 1800000001.0849745, '{"uuid": "01MCC5RMZK6D8EQ4VWNP0QEZKR", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 1072, "cacheReadTokens": 0, "cacheWriteTokens": 2402}, "costUsd": 0.016725, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMW7P6KP33CM7YBPC2K2', 'telegram:chat:3001', 'running', 1800000000.9129083, NULL);
