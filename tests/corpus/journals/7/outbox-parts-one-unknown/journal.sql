INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.4395723);
INSERT INTO inbox VALUES ('01MCC5RMDQTD7G1BPKZB49AZT4', 'telegram:chat:3001', '3001', 1800000000.4395723, 1800000000.4476786, 'in_turn', '01MCC5RMDQTD7G1BPKZB49AZT4', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMDQTD7G1BPKZB49AZT4"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMDQTD7G1BPKZB49AZT4', 1800000000.4395723);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMDQTD7G1BPKZB49AZT4', 1800000000.4395723);
INSERT INTO lost VALUES (1, 'gone', 1800000000.3157964);
INSERT INTO outbox VALUES ('01MCC5RMKWM52ATF4FVKGS6GBV', '01MCC5RMDQTD7G1BPKZB49AZT4', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.63637, 1800000000.6539702);
INSERT INTO outbox VALUES ('01MCC5RMKWM52ATF4FVKGS6GBW', '01MCC5RMDQTD7G1BPKZB49AZT4', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.63637, 1800000000.6798987);
INSERT INTO steps VALUES ('01MCC5RMDQTD7G1BPKZB49AZT4', '01MCC5RMEBY71792SY1WCMAJHN', 'model', 'claude-sonnet-5-5', 1800000000.4601603, 1800000000.5928867, '{"uuid": "01MCC5RMHFFWC7ZT9EZCMW85YN", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 1072, "cacheReadTokens": 0, "cacheWriteTokens": 2605}, "costUsd": 0.0172325, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO turns VALUES ('01MCC5RMDQTD7G1BPKZB49AZT4', 'telegram:chat:3001', 'running', 1800000000.4476786, NULL);
