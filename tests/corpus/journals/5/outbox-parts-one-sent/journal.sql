INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.2135265);
INSERT INTO inbox VALUES ('01MCC5RM6N24C82HH2M999K148', 'telegram:chat:3001', '3001', 1800000000.2135265, 1800000000.2193553, 'claimed', NULL, '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM6N24C82HH2M999K148"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM6N24C82HH2M999K148', 1800000000.2135265);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM6N24C82HH2M999K148', 1800000000.2135265);
INSERT INTO lost VALUES (1, 'gone', 1800000000.190824);
INSERT INTO outbox VALUES ('01MCC5RMCVQHMNZRT7HAGP0FT8', '01MCC5RM6N24C82HH2M999K148', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, 1800000000.4112916, 1800000000.4257362, NULL, NULL, 0, 0);
INSERT INTO outbox VALUES ('01MCC5RMCVQHMNZRT7HAGP0FT9', '01MCC5RM6N24C82HH2M999K148', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'intent', NULL, NULL, 1800000000.4112916, 1800000000.4112916, NULL, NULL, 0, 0);
INSERT INTO outbox VALUES ('01MCC5RMCVQHMNZRT7HAGP0FTA', '01MCC5RM6N24C82HH2M999K148', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'intent', NULL, NULL, 1800000000.4112916, 1800000000.4112916, NULL, NULL, 0, 0);
INSERT INTO steps VALUES ('01MCC5RM6N24C82HH2M999K148', '01MCC5RM7EPA98CMFZQHR7DB3B', 'model', 'claude-sonnet-5-5', 1800000000.2386084, 1800000000.363497, '{"uuid": "01MCC5RMB9D7YCRRKS52TR1BRE", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 2128, "cacheReadTokens": 0, "cacheWriteTokens": 2605}, "costUsd": 0.0277925, "providerRequestId": "req_000000000000000000000003"}');
