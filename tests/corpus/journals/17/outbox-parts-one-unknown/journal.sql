INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.536796, NULL);
INSERT INTO inbox VALUES ('01MCC5RMGRPCPEWNQG58EBXXMJ', 'telegram:chat:3001', '3001', 1800000000.536796, 1800000000.554146, 'in_turn', '01MCC5RMGRPCPEWNQG58EBXXMJ', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "chatName": null, "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "mentioned": {}, "answers": null, "items": {}, "ofAlbum": false, "goesOn": false, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RMGRPCPEWNQG58EBXXMJ"}', NULL);
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMGRPCPEWNQG58EBXXMJ', 1800000000.536796);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMGRPCPEWNQG58EBXXMJ', 1800000000.536796);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A3001', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"3001","chatKey":"telegram:chat:3001","userId":"3001","messageId":"1","role":"user","text":"a long question 长","meta":{"requestId":"01MCC5RMGRPCPEWNQG58EBXXMJ","chatType":"direct","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A3001/01MCC5RMJ569Q7N3DKV967DE7R.jsonl', CAST('{"v":3,"uuid":"01MCC5RMJWH9R5JZJR58BEJN13","parentUuid":null,"type":"turn_start","ts":1800000000605,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMJ569Q7N3DKV967DE7R","requestId":"01MCC5RMGRPCPEWNQG58EBXXMJ","data":{"frame":{"model":"claude-sonnet-5-5","digest":"9c1433b11f0b31e5","surroundings":{"projectFolder":"none"}}}}
{"v":3,"uuid":"01MCC5RMJXK7SQMN768FN5JDPT","parentUuid":null,"type":"user","ts":1800000000605,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMJ569Q7N3DKV967DE7R","requestId":"01MCC5RMGRPCPEWNQG58EBXXMJ","message":{"role":"user","content":[{"type":"text","text":"<turn_context-688e8210>{\"requestId\": \"01MCC5RMGRPCPEWNQG58EBXXMJ\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-688e8210>"},{"type":"text","text":"a long question 长"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A3001/01MCC5RMJ569Q7N3DKV967DE7R.jsonl', CAST('{"v":3,"uuid":"01MCC5RMP6766TSRDDQTNNCZ5M","parentUuid":"01MCC5RMJXK7SQMN768FN5JDPT","type":"assistant","ts":1800000000710,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMJ569Q7N3DKV967DE7R","requestId":"01MCC5RMGRPCPEWNQG58EBXXMJ","message":{"role":"assistant","content":[{"type":"text","text":"answer to a long question 长\n\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one."}],"origin":["3001"]},"data":{"stopReason":"end_turn","usage":{"inputTokens":0,"outputTokens":1072,"cacheReadTokens":0,"cacheWriteTokens":2472},"costUsd":0.0169}}
' AS BLOB));
INSERT INTO outbox VALUES ('01MCC5RMQ9Y5SQ5XV37C0HBWXR', '01MCC5RMGRPCPEWNQG58EBXXMJ', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.7461264, 1800000000.7712588, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL, 0);
INSERT INTO outbox VALUES ('01MCC5RMQ9Y5SQ5XV37C0HBWXS', '01MCC5RMGRPCPEWNQG58EBXXMJ', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.7461264, 1800000000.8109002, NULL, NULL, 'en', NULL, 'UTC', 0, '01MCC5RMQ9Y5SQ5XV37C0HBWXR', NULL, 0);
INSERT INTO steps VALUES ('01MCC5RMGRPCPEWNQG58EBXXMJ', '01MCC5RMJYZQEW346CEZEC0CXA', 'model', 'claude-sonnet-5-5', 1800000000.6063418, 1800000000.7477767, '{"uuid": "01MCC5RMP6766TSRDDQTNNCZ5M", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 1072, "cacheReadTokens": 0, "cacheWriteTokens": 2472}, "costUsd": 0.0169, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMGRPCPEWNQG58EBXXMJ', 'telegram:chat:3001', 'running', 1800000000.554146, NULL);
