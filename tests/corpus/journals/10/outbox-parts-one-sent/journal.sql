INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.6730518, NULL);
INSERT INTO inbox VALUES ('01MCC5RMN1X9TW17YRZMD5NDXD', 'telegram:chat:3001', '3001', 1800000000.6730518, 1800000000.6743135, 'in_turn', '01MCC5RMN1X9TW17YRZMD5NDXD', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a very long question", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMN1X9TW17YRZMD5NDXD"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMN1X9TW17YRZMD5NDXD', 1800000000.6730518);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMN1X9TW17YRZMD5NDXD', 1800000000.6730518);
INSERT INTO lost VALUES (1, 'gone', 1800000000.6593704);
INSERT INTO outbox VALUES ('01MCC5RMXZCP6A08N2PPZF8T6K', '01MCC5RMN1X9TW17YRZMD5NDXD', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a very long question

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.9600413, 1800000000.9637241, NULL, NULL);
INSERT INTO outbox VALUES ('01MCC5RMXZTSBWN3W5XEKKVY4A', '01MCC5RMN1X9TW17YRZMD5NDXD', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'ready', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.9600413, 1800000000.9600413, NULL, NULL);
INSERT INTO outbox VALUES ('01MCC5RMXZTSBWN3W5XEKKVY4B', '01MCC5RMN1X9TW17YRZMD5NDXD', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'ready', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.9600413, 1800000000.9600413, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RMN1X9TW17YRZMD5NDXD', '01MCC5RMN5ZQV02S5RS9WR76XX', 'model', 'claude-sonnet-5-5', 1800000000.6776533, 1800000000.7371583, '{"uuid": "01MCC5RMPYSNH7S3B6YCHJZ263", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 2128, "cacheReadTokens": 0, "cacheWriteTokens": 2396}, "costUsd": 0.02727, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMN1X9TW17YRZMD5NDXD', 'telegram:chat:3001', 'running', 1800000000.6743135, NULL);
