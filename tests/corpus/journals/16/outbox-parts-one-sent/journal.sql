INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.2613146, NULL);
INSERT INTO inbox VALUES ('01MCC5RM85JV6E6WWB5BHECB8K', 'telegram:chat:3001', '3001', 1800000000.2613146, 1800000000.2680306, 'in_turn', '01MCC5RM85JV6E6WWB5BHECB8K', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a very long question", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RM85JV6E6WWB5BHECB8K"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM85JV6E6WWB5BHECB8K', 1800000000.2613146);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM85JV6E6WWB5BHECB8K', 1800000000.2613146);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A3001', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"3001","chatKey":"telegram:chat:3001","userId":"3001","messageId":"1","role":"user","text":"a very long question","meta":{"requestId":"01MCC5RM85JV6E6WWB5BHECB8K","chatType":"direct","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A3001/01MCC5RM8ERH9C03D4FNRP8V9G.jsonl', CAST('{"v":1,"uuid":"01MCC5RM8GAKG92X285ZZ69GGG","parentUuid":null,"type":"turn_start","ts":1800000000272,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM8ERH9C03D4FNRP8V9G","requestId":"01MCC5RM85JV6E6WWB5BHECB8K","data":{"frame":{"model":"claude-sonnet-5-5","digest":"7bb8d6ecac4c4dbd","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RM8GVBKXFDWCRHYDE090","parentUuid":null,"type":"user","ts":1800000000272,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM8ERH9C03D4FNRP8V9G","requestId":"01MCC5RM85JV6E6WWB5BHECB8K","message":{"role":"user","content":[{"type":"text","text":"<turn_context-65fa8a19>{\"requestId\": \"01MCC5RM85JV6E6WWB5BHECB8K\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-65fa8a19>"},{"type":"text","text":"a very long question"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A3001/01MCC5RM8ERH9C03D4FNRP8V9G.jsonl', CAST('{"v":1,"uuid":"01MCC5RMAMNXGH9F3KF3G5WWGG","parentUuid":"01MCC5RM8GVBKXFDWCRHYDE090","type":"assistant","ts":1800000000341,"chatKey":"telegram:chat:3001","sessionId":"01MCC5RM8ERH9C03D4FNRP8V9G","requestId":"01MCC5RM85JV6E6WWB5BHECB8K","message":{"role":"assistant","content":[{"type":"text","text":"answer to a very long question\n\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one.\nThis line belongs to the long answer, and so does the next one."}],"origin":["3001"]},"data":{"stopReason":"end_turn","usage":{"inputTokens":0,"outputTokens":2128,"cacheReadTokens":0,"cacheWriteTokens":2488},"costUsd":0.0275}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.2433918);
INSERT INTO outbox VALUES ('01MCC5RMRZA46J60XYJXWJMNXY', '01MCC5RM85JV6E6WWB5BHECB8K', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a very long question

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.7996702, 1800000000.8130658, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL);
INSERT INTO outbox VALUES ('01MCC5RMRZS6ZVHWYZT6QSWVJF', '01MCC5RM85JV6E6WWB5BHECB8K', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'ready', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.7996702, 1800000000.7996702, NULL, NULL, 'en', NULL, 'UTC', 0, '01MCC5RMRZA46J60XYJXWJMNXY', NULL);
INSERT INTO outbox VALUES ('01MCC5RMRZS6ZVHWYZT6QSWVJG', '01MCC5RM85JV6E6WWB5BHECB8K', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'ready', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.7996702, 1800000000.7996702, NULL, NULL, 'en', NULL, 'UTC', 0, '01MCC5RMRZA46J60XYJXWJMNXY', NULL);
INSERT INTO steps VALUES ('01MCC5RM85JV6E6WWB5BHECB8K', '01MCC5RM8HZ7GM6477MFFTVS3D', 'model', 'claude-sonnet-5-5', 1800000000.2730713, 1800000000.3566215, '{"uuid": "01MCC5RMAMNXGH9F3KF3G5WWGG", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 2128, "cacheReadTokens": 0, "cacheWriteTokens": 2488}, "costUsd": 0.0275, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM85JV6E6WWB5BHECB8K', 'telegram:chat:3001', 'running', 1800000000.2680306, NULL);
