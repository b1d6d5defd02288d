INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.2530258, NULL);
INSERT INTO inbox VALUES ('01MCC5RM7WPFGYCTE4PVYJ1JWY', 'telegram:chat:3001', '3001', 1800000000.2530258, 1800000000.2604039, 'in_turn', '01MCC5RM7WPFGYCTE4PVYJ1JWY', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "question one 问题一", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RM7WPFGYCTE4PVYJ1JWY"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM7WPFGYCTE4PVYJ1JWY', 1800000000.2530258);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM7WPFGYCTE4PVYJ1JWY', 1800000000.2530258);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A3001', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"3001","chatKey":"telegram:chat:3001","userId":"3001","messageId":"1","role":"user","text":"question one 问题一","meta":{"requestId":"01MCC5RM7WPFGYCTE4PVYJ1JWY","chatType":"direct","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.162827);
INSERT INTO steps VALUES ('01MCC5RM7WPFGYCTE4PVYJ1JWY', '01MCC5RM90WXD6GS14JH6Z0SXS', 'model', 'claude-sonnet-5-5', 1800000000.2886758, NULL, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RM7WPFGYCTE4PVYJ1JWY', 'telegram:chat:3001', 'running', 1800000000.2604039, NULL);
