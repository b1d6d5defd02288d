INSERT INTO chats VALUES ('telegram:chat:3001', 1800000002.088973, NULL);
INSERT INTO inbox VALUES ('01MCC5RP18NCBPWQS3NA9DRJ5V', 'telegram:chat:3001', '3001', 1800000002.088973, 1800000002.0954616, 'in_turn', '01MCC5RP18NCBPWQS3NA9DRJ5V', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000002000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "book a table 订位", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RP18NCBPWQS3NA9DRJ5V"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RP18NCBPWQS3NA9DRJ5V', 1800000002.088973);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RP18NCBPWQS3NA9DRJ5V', 1800000002.088973);
INSERT INTO lost VALUES (1, 'gone', 1800000000.086319);
INSERT INTO outbox VALUES ('01MCC5RP2JA4S9K2B1A7T37M6B', '01MCC5RP2H3NYTY2Z0CRNFTBV1', 'telegram:chat:3001', '{"chat_id": "3001"}', 'The tool book of the MCP server friends asks: “How many people?”
people: People, a whole number.

Your next message is the answer; skip answers nothing. Send no passwords or keys this way.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.1302278, 1800000002.1364012, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RP18NCBPWQS3NA9DRJ5V', '01MCC5RP1VRWQKMGBZ89FP1M49', 'model', 'claude-sonnet-5-5', 1800000002.1071765, 1800000002.1222017, '{"uuid": "01MCC5RP26A35PP3EW8YK8NXMP", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 19, "cacheReadTokens": 0, "cacheWriteTokens": 2403}, "costUsd": 0.0061975, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO steps VALUES ('01MCC5RP18NCBPWQS3NA9DRJ5V', 'toolu_000000000000000000000004', 'tool', 'mcp__friends__book', 1800000002.1208615, NULL, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RP18NCBPWQS3NA9DRJ5V', 'telegram:chat:3001', 'suspended', 1800000002.0954616, NULL);
