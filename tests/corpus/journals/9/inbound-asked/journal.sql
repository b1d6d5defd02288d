INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.1534283);
INSERT INTO inbox VALUES ('01MCC5RM4SA8VS7S7168674JBQ', 'telegram:chat:3001', '3001', 1800000000.1534283, 1800000000.1549792, 'in_turn', '01MCC5RM4SA8VS7S7168674JBQ', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "question one 问题一", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM4SA8VS7S7168674JBQ"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM4SA8VS7S7168674JBQ', 1800000000.1534283);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM4SA8VS7S7168674JBQ', 1800000000.1534283);
INSERT INTO lost VALUES (1, 'gone', 1800000000.1442025);
INSERT INTO steps VALUES ('01MCC5RM4SA8VS7S7168674JBQ', '01MCC5RM558XNAYSQADN352M0T', 'model', 'claude-sonnet-5-5', 1800000000.1655946, NULL, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RM4SA8VS7S7168674JBQ', 'telegram:chat:3001', 'running', 1800000000.1549792, NULL);
