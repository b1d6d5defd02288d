INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.285544);
INSERT INTO inbox VALUES ('01MCC5RM8XG72GJ1MC5F0WA14A', 'telegram:chat:3001', '3001', 1800000000.285544, 1800000000.295755, 'claimed', NULL, '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM8XG72GJ1MC5F0WA14A"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM8XG72GJ1MC5F0WA14A', 1800000000.285544);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM8XG72GJ1MC5F0WA14A', 1800000000.285544);
INSERT INTO lost VALUES (1, 'gone', 1800000000.2266543);
INSERT INTO outbox VALUES ('01MCC5RMDRGKKPHND8BYBJ8WXK', '01MCC5RM8XG72GJ1MC5F0WA14A', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, 1800000000.4405632, 1800000000.4532042, NULL, NULL, 0, 0);
INSERT INTO outbox VALUES ('01MCC5RMDRVGH734060D5MXXSJ', '01MCC5RM8XG72GJ1MC5F0WA14A', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, 1800000000.4405632, 1800000000.4591997, NULL, NULL, 0, 0);
INSERT INTO outbox VALUES ('01MCC5RMDRVGH734060D5MXXSK', '01MCC5RM8XG72GJ1MC5F0WA14A', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'intent', NULL, NULL, 1800000000.4405632, 1800000000.4405632, NULL, NULL, 0, 0);
INSERT INTO steps VALUES ('01MCC5RM8XG72GJ1MC5F0WA14A', '01MCC5RMAC5WBH93FBY7D78EYA', 'model', 'claude-sonnet-5-5', 1800000000.3327942, 1800000000.4167032, '{"uuid": "01MCC5RMCYHZYC6CQT3JSWGGG8", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 2128, "cacheReadTokens": 0, "cacheWriteTokens": 2605}, "costUsd": 0.0277925, "providerRequestId": "req_000000000000000000000003"}');
