INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.0400202);
INSERT INTO inbox VALUES ('01MCC5RM17BPJRVTPMFX9AKBXG', 'telegram:chat:3001', '3001', 1800000000.0400202, 1800000000.0420508, 'in_turn', '01MCC5RM17BPJRVTPMFX9AKBXG', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "question one 问题一", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM17BPJRVTPMFX9AKBXG"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM17BPJRVTPMFX9AKBXG', 1800000000.0400202);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM17BPJRVTPMFX9AKBXG', 1800000000.0400202);
INSERT INTO lost VALUES (1, 'gone', 1800000000.0243924);
INSERT INTO steps VALUES ('01MCC5RM17BPJRVTPMFX9AKBXG', '01MCC5RM1NYZWMZKXZERY75D3G', 'model', 'claude-sonnet-5-5', 1800000000.0537796, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RM17BPJRVTPMFX9AKBXG', 'telegram:chat:3001', 'running', 1800000000.0420508, NULL);
