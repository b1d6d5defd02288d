INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.2270706);
INSERT INTO inbox VALUES ('01MCC5RM73HCWWFK0PY5H6G2T4', 'telegram:chat:3001', '3001', 1800000000.2270706, 1800000000.236864, 'in_turn', '01MCC5RM73HCWWFK0PY5H6G2T4', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM73HCWWFK0PY5H6G2T4"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM73HCWWFK0PY5H6G2T4', 1800000000.2270706);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM73HCWWFK0PY5H6G2T4', 1800000000.2270706);
INSERT INTO lost VALUES (1, 'gone', 1800000000.188376);
INSERT INTO outbox VALUES ('01MCC5RM8NQ5RDF9REPVBZNASD', '01MCC5RM73HCWWFK0PY5H6G2T4', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.2777462, 1800000000.3176541, NULL, NULL);
INSERT INTO outbox VALUES ('01MCC5RM8NX0DWH0ZG7CGW5C87', '01MCC5RM73HCWWFK0PY5H6G2T4', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.2777462, 1800000000.3365402, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM73HCWWFK0PY5H6G2T4', '01MCC5RM7FTS041TPM6MK94ACV', 'model', 'claude-sonnet-5-5', 1800000000.2398946, 1800000000.2643385, '{"uuid": "01MCC5RM85Q7SNKKEG00VVFYWF", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 1072, "cacheReadTokens": 0, "cacheWriteTokens": 2319}, "costUsd": 0.0165175, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM73HCWWFK0PY5H6G2T4', 'telegram:chat:3001', 'running', 1800000000.236864, NULL);
