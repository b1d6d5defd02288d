INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.293738, NULL);
INSERT INTO inbox VALUES ('01MCC5RM953Y5B3JXJMTSH381Q', 'telegram:chat:3001', '3001', 1800000000.293738, 1800000000.2998006, 'in_turn', '01MCC5RM953Y5B3JXJMTSH381Q', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "question one 问题一", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM953Y5B3JXJMTSH381Q"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM953Y5B3JXJMTSH381Q', 1800000000.293738);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM953Y5B3JXJMTSH381Q', 1800000000.293738);
INSERT INTO lost VALUES (1, 'gone', 1800000000.2710161);
INSERT INTO steps VALUES ('01MCC5RM953Y5B3JXJMTSH381Q', '01MCC5RMA8T1SS90XAS2VZ42GS', 'model', 'claude-sonnet-5-5', 1800000000.3289514, NULL, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RM953Y5B3JXJMTSH381Q', 'telegram:chat:3001', 'running', 1800000000.2998006, NULL);
