INSERT INTO chats VALUES ('telegram:chat:3001', 1800000008.325998);
INSERT INTO inbox VALUES ('01MCC5RW45Z2FENJHZRH9VA807', 'telegram:chat:3001', '3001', 1800000008.325998, 1800000008.3414466, 'in_turn', '01MCC5RW45Z2FENJHZRH9VA807', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000008000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "book a table 订位", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RW45Z2FENJHZRH9VA807"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RW45Z2FENJHZRH9VA807', 1800000008.325998);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RW45Z2FENJHZRH9VA807', 1800000008.325998);
INSERT INTO lost VALUES (1, 'gone', 1800000000.0861425);
INSERT INTO outbox VALUES ('01MCC5RWBAHNZ6F06V4QSFARGT', '01MCC5RWBAHNZ6F06V4QSFARGS', 'telegram:chat:3001', '{"chat_id": "3001"}', 'The tool book of the MCP server friends asks: “How many people?”
people: People, a whole number.

Your next message is the answer; skip answers nothing. Send no passwords or keys this way.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000008.554325, 1800000008.57869, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RW45Z2FENJHZRH9VA807', '01MCC5RW70HJAH0A00PJNFMAS0', 'model', 'claude-sonnet-5-5', 1800000008.4162285, 1800000008.5351365, '{"uuid": "01MCC5RW98TXAFMZ2S9S09B417", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 19, "cacheReadTokens": 0, "cacheWriteTokens": 2327}, "costUsd": 0.0060075, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO steps VALUES ('01MCC5RW45Z2FENJHZRH9VA807', 'toolu_000000000000000000000004', 'tool', 'mcp__friends__book', 1800000008.493176, NULL, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RW45Z2FENJHZRH9VA807', 'telegram:chat:3001', 'suspended', 1800000008.3414466, NULL);
