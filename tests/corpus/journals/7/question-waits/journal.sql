INSERT INTO chats VALUES ('telegram:chat:3001', 1800000009.7418048);
INSERT INTO inbox VALUES ('01MCC5RXGDDGRRZ6HA4ZQ0VWJ2', 'telegram:chat:3001', '3001', 1800000009.7418048, 1800000009.7620656, 'in_turn', '01MCC5RXGDDGRRZ6HA4ZQ0VWJ2', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000009000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "book a table 订位", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RXGDDGRRZ6HA4ZQ0VWJ2"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RXGDDGRRZ6HA4ZQ0VWJ2', 1800000009.7418048);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RXGDDGRRZ6HA4ZQ0VWJ2', 1800000009.7418048);
INSERT INTO lost VALUES (1, 'gone', 1800000000.1315432);
INSERT INTO outbox VALUES ('01MCC5RXSPRR7B12CCNPCZJ182', '01MCC5RXSP2YTFR6CC123FXZ4T', 'telegram:chat:3001', '{"chat_id": "3001"}', 'The tool book of the MCP server friends asks: “How many people?”
people: People, a whole number.

Your next message is the answer; skip answers nothing. Send no passwords or keys this way.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000010.0389705, 1800000010.0516589);
INSERT INTO steps VALUES ('01MCC5RXGDDGRRZ6HA4ZQ0VWJ2', '01MCC5RXKVMJ22JVD26BA69E6H', 'model', 'claude-sonnet-5-5', 1800000009.851501, 1800000009.8998663, '{"uuid": "01MCC5RXM8Y5K0GT2RSW2WXH40", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 19, "cacheReadTokens": 0, "cacheWriteTokens": 2612}, "costUsd": 0.00672, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO steps VALUES ('01MCC5RXGDDGRRZ6HA4ZQ0VWJ2', 'toolu_000000000000000000000004', 'tool', 'mcp__friends__book', 1800000009.8766592, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RXGDDGRRZ6HA4ZQ0VWJ2', 'telegram:chat:3001', 'suspended', 1800000009.7620656, NULL);
