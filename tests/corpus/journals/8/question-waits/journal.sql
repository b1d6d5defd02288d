INSERT INTO chats VALUES ('telegram:chat:3001', 1800000001.2015688);
INSERT INTO inbox VALUES ('01MCC5RN5HMM2BTHWVVSD0BFZZ', 'telegram:chat:3001', '3001', 1800000001.2015688, 1800000001.2041605, 'in_turn', '01MCC5RN5HMM2BTHWVVSD0BFZZ', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000001000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "book a table 订位", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RN5HMM2BTHWVVSD0BFZZ"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RN5HMM2BTHWVVSD0BFZZ', 1800000001.2015688);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RN5HMM2BTHWVVSD0BFZZ', 1800000001.2015688);
INSERT INTO lost VALUES (1, 'gone', 1800000000.0257745);
INSERT INTO outbox VALUES ('01MCC5RN6M8BW5NT9W5TTVG30R', '01MCC5RN6KS6R5Z9M70K0S3PKP', 'telegram:chat:3001', '{"chat_id": "3001"}', 'The tool book of the MCP server friends asks: “How many people?”
people: People, a whole number.

Your next message is the answer; skip answers nothing. Send no passwords or keys this way.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.236105, 1800000001.2443893);
INSERT INTO steps VALUES ('01MCC5RN5HMM2BTHWVVSD0BFZZ', '01MCC5RN5YX2XF21VPFEHXCB9W', 'model', 'claude-sonnet-5-5', 1800000001.2148418, 1800000001.2265534, '{"uuid": "01MCC5RN6516G3S9K9QYFYVDWB", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 19, "cacheReadTokens": 0, "cacheWriteTokens": 2612}, "costUsd": 0.00672, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO steps VALUES ('01MCC5RN5HMM2BTHWVVSD0BFZZ', 'toolu_000000000000000000000004', 'tool', 'mcp__friends__book', 1800000001.2230687, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RN5HMM2BTHWVVSD0BFZZ', 'telegram:chat:3001', 'suspended', 1800000001.2041605, NULL);
