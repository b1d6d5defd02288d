INSERT INTO chats VALUES ('telegram:chat:3001', 1800000024.481642);
INSERT INTO inbox VALUES ('01MCC5SBX14PD096ET18VB8HQK', 'telegram:chat:3001', '3001', 1800000024.481642, 1800000024.5233622, 'claimed', NULL, '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000024000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "book a table 订位", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5SBX14PD096ET18VB8HQK"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5SBX14PD096ET18VB8HQK', 1800000024.481642);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5SBX14PD096ET18VB8HQK', 1800000024.481642);
INSERT INTO lost VALUES (1, 'gone', 1800000001.2841272);
INSERT INTO outbox VALUES ('01MCC5SC6VNB5YV62D77G08VZ5', '01MCC5SC6VNB5YV62D77G08VZ4', 'telegram:chat:3001', '{"chat_id": "3001"}', 'The tool book of the MCP server friends asks: “How many people?”
people: People, a whole number.

Your next message is the answer; skip answers nothing. Send no passwords or keys this way.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000024.7959757, 1800000024.8409944);
INSERT INTO steps VALUES ('01MCC5SBX14PD096ET18VB8HQK', '01MCC5SC2FS9V1YTQ6WQ8D2X4J', 'model', 'claude-sonnet-5-5', 1800000024.6561117, 1800000024.7786767, '{"uuid": "01MCC5SC5BVKJPR4ZDE0VAV6AY", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 19, "cacheReadTokens": 0, "cacheWriteTokens": 2612}, "costUsd": 0.00672, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO steps VALUES ('01MCC5SBX14PD096ET18VB8HQK', 'toolu_000000000000000000000004', 'tool', 'mcp__friends__book', 1800000024.7517493, NULL, NULL);
