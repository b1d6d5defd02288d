INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.407894);
INSERT INTO inbox VALUES ('01MCC5RMCQWT7FDCH1RNZRHHRW', 'telegram:chat:3001', '3001', 1800000000.407894, 1800000000.4156764, 'in_turn', '01MCC5RMCQWT7FDCH1RNZRHHRW', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "question one 问题一", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMCQWT7FDCH1RNZRHHRW"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMCQWT7FDCH1RNZRHHRW', 1800000000.407894);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMCQWT7FDCH1RNZRHHRW', 1800000000.407894);
INSERT INTO lost VALUES (1, 'gone', 1800000000.2425945);
INSERT INTO outbox VALUES ('01MCC5RMDVXET09K0SVX52HNVX', '01MCC5RMCQWT7FDCH1RNZRHHRW', 'telegram:chat:3001', '{"chat_id": "3001"}', 'answe …', 'preview', 'sending', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.443379, 1800000000.453552);
INSERT INTO steps VALUES ('01MCC5RMCQWT7FDCH1RNZRHHRW', '01MCC5RMDFC7FJBGGQTRYE7BJZ', 'model', 'claude-sonnet-5-5', 1800000000.4323006, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RMCQWT7FDCH1RNZRHHRW', 'telegram:chat:3001', 'running', 1800000000.4156764, NULL);
