INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.1662169, NULL);
INSERT INTO inbox VALUES ('01MCC5RM56XV85H6WJTHAJRA49', 'telegram:chat:3001', '3001', 1800000000.1662169, 1800000000.1673207, 'in_turn', '01MCC5RM56XV85H6WJTHAJRA49', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM56XV85H6WJTHAJRA49"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM56XV85H6WJTHAJRA49', 1800000000.1662169);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM56XV85H6WJTHAJRA49', 1800000000.1662169);
INSERT INTO lost VALUES (1, 'gone', 1800000000.1456206);
INSERT INTO outbox VALUES ('01MCC5RM782HME2Z1RF5HA3KF5', '01MCC5RM56XV85H6WJTHAJRA49', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.2331257, 1800000000.2424104, NULL, NULL);
INSERT INTO outbox VALUES ('01MCC5RM79FA7M8R9QBNZSNHG8', '01MCC5RM56XV85H6WJTHAJRA49', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.2331257, 1800000000.2539601, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM56XV85H6WJTHAJRA49', '01MCC5RM5FFCX13KGNEV796M6E', 'model', 'claude-sonnet-5-5', 1800000000.1753442, 1800000000.217783, '{"uuid": "01MCC5RM6JS7TM5V3EM3PWYH0D", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 1072, "cacheReadTokens": 0, "cacheWriteTokens": 2395}, "costUsd": 0.0167075, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM56XV85H6WJTHAJRA49', 'telegram:chat:3001', 'running', 1800000000.1673207, NULL);
