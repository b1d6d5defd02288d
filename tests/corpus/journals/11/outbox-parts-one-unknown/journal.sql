INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.8797078, NULL);
INSERT INTO inbox VALUES ('01MCC5RMVFFBEQ6Y99YFXGH28C', 'telegram:chat:3001', '3001', 1800000000.8797078, 1800000000.9389498, 'in_turn', '01MCC5RMVFFBEQ6Y99YFXGH28C', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMVFFBEQ6Y99YFXGH28C"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMVFFBEQ6Y99YFXGH28C', 1800000000.8797078);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMVFFBEQ6Y99YFXGH28C', 1800000000.8797078);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A3001', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"3001","chatKey":"telegram:chat:3001","userId":"3001","messageId":"1","role":"user","text":"a long question 长","meta":{"requestId":"01MCC5RMVFFBEQ6Y99YFXGH28C","chatType":"direct","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A3001/01MCC5RMXKPG4EDK0NQDH3WEFY.jsonl', CAST('{"v":1,"uuid":"01MCC5RMZDVEW2K7KFTWPYY5HT","parentUuid":null,"type":"turn_start","ts":1800000001005,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMXKPG4EDK0NQDH3WEFY","requestId":"01MCC5RMVFFBEQ6Y99YFXGH28C","data":{"frame":{"model":"claude-sonnet-5-5","digest":"69e9297836b38399","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RMZDVEW2K7KFTWPYY5HV","parentUuid":null,"type":"user","ts":1800000001005,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMXKPG4EDK0NQDH3WEFY","requestId":"01MCC5RMVFFBEQ6Y99YFXGH28C","message":{"role":"user","content":[{"type":"text","text":"<turn_context-e3fc68c8>{\"requestId\": \"01MCC5RMVFFBEQ6Y99YFXGH28C\", \"time\": \"2027-01-15T08:00:01Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-e3fc68c8>"},{"type":"text","text":"a long question 长"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A3001/01MCC5RMXKPG4EDK0NQDH3WEFY.jsonl', CAST('{"v":1,"uuid":"01MCC5RMZDVEW2K7KFTWPYY5HT","parentUuid":null,"type":"turn_start","ts":1800000001005,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMXKPG4EDK0NQDH3WEFY","requestId":"01MCC5RMVFFBEQ6Y99YFXGH28C","data":{"frame":{"model":"claude-sonnet-5-5","digest":"69e9297836b38399","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RMZDVEW2K7KFTWPYY5HV","parentUuid":null,"type":"user","ts":1800000001005,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMXKPG4EDK0NQDH3WEFY","requestId":"01MCC5RMVFFBEQ6Y99YFXGH28C","message":{"role":"user","content":[{"type":"text","text":"<turn_context-e3fc68c8>{\"requestId\": \"01MCC5RMVFFBEQ6Y99YFXGH28C\", \"time\": \"2027-01-15T08:00:01Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-e3fc68c8>"},{"type":"text","text":"a long question 长"}]}}
{"v":1,"uuid":"01MCC5RNA99V01SPTKR6K8A59A","parentUuid":"01MCC5RMZDVEW2K7KFTWPYY5HV","type":"assistant","ts":1800000001353,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RMXKPG4EDK0NQDH3WEFY","requestId":"01MCC5RMVFFBEQ6Y99YFXGH28C","message":{"role":"assistant","content":[{"type":"text","text":"answer to a long question 长\n\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one."}],"origin":["3001"]},"data":{"stopReason":"end_turn","usage":{"inputTokens":0,"outputTokens":1072,"cacheReadTokens":0,"cacheWriteTokens":2395},"costUsd":0.0167075}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.5435605);
INSERT INTO outbox VALUES ('01MCC5RNFSRSEMYGCKHFHDE779', '01MCC5RMVFFBEQ6Y99YFXGH28C', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.5298612, 1800000001.5664368, NULL, NULL);
INSERT INTO outbox VALUES ('01MCC5RNFSRSEMYGCKHFHDE77A', '01MCC5RMVFFBEQ6Y99YFXGH28C', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.5298612, 1800000001.6383686, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RMVFFBEQ6Y99YFXGH28C', '01MCC5RMZKJBS4NGCG0JZVRRE4', 'model', 'claude-sonnet-5-5', 1800000001.011267, 1800000001.5445962, '{"uuid": "01MCC5RNA99V01SPTKR6K8A59A", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 1072, "cacheReadTokens": 0, "cacheWriteTokens": 2395}, "costUsd": 0.0167075, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMVFFBEQ6Y99YFXGH28C', 'telegram:chat:3001', 'running', 1800000000.9389498, NULL);
