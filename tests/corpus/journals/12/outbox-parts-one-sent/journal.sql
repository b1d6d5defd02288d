INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.1125846, NULL);
INSERT INTO inbox VALUES ('01MCC5RM3G5DHGX2GX0HX7XEQS', 'telegram:chat:3001', '3001', 1800000000.1125846, 1800000000.1232553, 'in_turn', '01MCC5RM3G5DHGX2GX0HX7XEQS', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a very long question", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RM3G5DHGX2GX0HX7XEQS"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM3G5DHGX2GX0HX7XEQS', 1800000000.1125846);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM3G5DHGX2GX0HX7XEQS', 1800000000.1125846);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A3001', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"3001","chatKey":"telegram:chat:3001","userId":"3001","messageId":"1","role":"user","text":"a very long question","meta":{"requestId":"01MCC5RM3G5DHGX2GX0HX7XEQS","chatType":"direct","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A3001/01MCC5RM3XAVH3F004WQSTP6NW.jsonl', CAST('{"v":1,"uuid":"01MCC5RM3YV6RQAP2XXMZBSA3E","parentUuid":null,"type":"turn_start","ts":1800000000126,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM3XAVH3F004WQSTP6NW","requestId":"01MCC5RM3G5DHGX2GX0HX7XEQS","data":{"frame":{"model":"claude-sonnet-5-5","digest":"bc6fed939e9ed73a","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RM3YV6RQAP2XXMZBSA3F","parentUuid":null,"type":"user","ts":1800000000126,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM3XAVH3F004WQSTP6NW","requestId":"01MCC5RM3G5DHGX2GX0HX7XEQS","message":{"role":"user","content":[{"type":"text","text":"<turn_context-7b4bce1c>{\"requestId\": \"01MCC5RM3G5DHGX2GX0HX7XEQS\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-7b4bce1c>"},{"type":"text","text":"a very long question"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A3001/01MCC5RM3XAVH3F004WQSTP6NW.jsonl', CAST('{"v":1,"uuid":"01MCC5RMERMF88KCSXFB94H156","parentUuid":"01MCC5RM3YV6RQAP2XXMZBSA3F","type":"assistant","ts":1800000000472,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM3XAVH3F004WQSTP6NW","requestId":"01MCC5RM3G5DHGX2GX0HX7XEQS","message":{"role":"assistant","content":[{"type":"text","text":"answer to a very long question\n\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one."}],"origin":["3001"]},"data":{"stopReason":"end_turn","usage":{"inputTokens":0,"outputTokens":2128,"cacheReadTokens":0,"cacheWriteTokens":2403},"costUsd":0.0272875}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.0916622);
INSERT INTO outbox VALUES ('01MCC5RMKGBW73GJT72HEJD2YX', '01MCC5RM3G5DHGX2GX0HX7XEQS', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a very long question

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
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.6248786, 1800000000.629384, NULL, NULL, 'en');
INSERT INTO outbox VALUES ('01MCC5RMKGRSKQC6PBNECC1V0E', '01MCC5RM3G5DHGX2GX0HX7XEQS', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
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
This line belongs to the long answer, and so does the next one.', 'reply', 'ready', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.6248786, 1800000000.6248786, NULL, NULL, 'en');
INSERT INTO outbox VALUES ('01MCC5RMKGRSKQC6PBNECC1V0F', '01MCC5RM3G5DHGX2GX0HX7XEQS', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'ready', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.6248786, 1800000000.6248786, NULL, NULL, 'en');
INSERT INTO steps VALUES ('01MCC5RM3G5DHGX2GX0HX7XEQS', '01MCC5RM3ZNP11AM4GDM4YPB63', 'model', 'claude-sonnet-5-5', 1800000000.1270177, 1800000000.4920049, '{"uuid": "01MCC5RMERMF88KCSXFB94H156", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 2128, "cacheReadTokens": 0, "cacheWriteTokens": 2403}, "costUsd": 0.0272875, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM3G5DHGX2GX0HX7XEQS', 'telegram:chat:3001', 'running', 1800000000.1232553, NULL);
