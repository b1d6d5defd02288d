INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.969009);
INSERT INTO inbox VALUES ('01MCC5RMY8PXCX7K5G8VHR93VF', 'telegram:chat:3001', '3001', 1800000000.969009, 1800000001.0513031, 'claimed', NULL, '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "a long question 长", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMY8PXCX7K5G8VHR93VF"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMY8PXCX7K5G8VHR93VF', 1800000000.969009);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMY8PXCX7K5G8VHR93VF', 1800000000.969009);
INSERT INTO lost VALUES (1, 'gone', 1800000000.7278104);
INSERT INTO outbox VALUES ('01MCC5RN8A0A9CAPHXDBPNSJXQ', '01MCC5RMY8PXCX7K5G8VHR93VF', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answer to a long question 长

This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.291195, 1800000001.3017013);
INSERT INTO outbox VALUES ('01MCC5RN8A7J748D28E8X84Y12', '01MCC5RMY8PXCX7K5G8VHR93VF', 'telegram:chat:3001', '{"chat_id": "3001"}', 'This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.
This line belongs to the long answer, and so does the next one.', 'reply', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.291195, 1800000001.313397);
INSERT INTO steps VALUES ('01MCC5RMY8PXCX7K5G8VHR93VF', '01MCC5RN4ZX9TY5SHWHAEBQ96C', 'model', 'claude-sonnet-5-5', 1800000001.1841462, 1800000001.2429755, '{"uuid": "01MCC5RN679JTCHXSHJYC4FA8X", "stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 1072, "cacheReadTokens": 0, "cacheWriteTokens": 2605}, "costUsd": 0.0172325, "providerRequestId": "req_000000000000000000000003"}');
