INSERT INTO chats VALUES ('telegram:chat:3001', 1800000002.7401881);
INSERT INTO inbox VALUES ('01MCC5RPNMFH8J4A8158V2H04X', 'telegram:chat:3001', '3001', 1800000002.7401881, 1800000002.7424026, 'claimed', NULL, '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000002000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "book a table 订位", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RPNMFH8J4A8158V2H04X"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RPNMFH8J4A8158V2H04X', 1800000002.7401881);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RPNMFH8J4A8158V2H04X', 1800000002.7401881);
INSERT INTO lost VALUES (1, 'gone', 1800000000.1015475);
INSERT INTO outbox VALUES ('01MCC5RPQEB9G004NCNECNVG4Y', '01MCC5RPQEB9G004NCNECNVG4X', 'telegram:chat:3001', '{"chat_id": "3001"}', 'The tool book of the MCP server friends asks: “How many people?”
people: People, a whole number.

Your next message is the answer; skip answers nothing. Send no passwords or keys this way.', 'notice', 'sent', '2', NULL, 1800000002.7983725, 1800000002.8090014, NULL, NULL, 0, 0);
INSERT INTO steps VALUES ('01MCC5RPNMFH8J4A8158V2H04X', '01MCC5RPP4N52TS1TKCS940SXN', 'model', 'claude-sonnet-5-5', 1800000002.7568247, 1800000002.7915218, '{"uuid": "01MCC5RPPHYAH6EYGXNKHNKCXJ", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 19, "cacheReadTokens": 0, "cacheWriteTokens": 2612}, "costUsd": 0.00672, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO steps VALUES ('01MCC5RPNMFH8J4A8158V2H04X', 'toolu_000000000000000000000004', 'tool', 'mcp__friends__book', 1800000002.7832937, NULL, NULL);
