INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.040441);
INSERT INTO inbox VALUES ('01MCC5RM18EBMSRC84KGN0SVTN', 'telegram:chat:3001', '3001', 1800000000.040441, 1800000000.0426302, 'in_turn', '01MCC5RM18EBMSRC84KGN0SVTN', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "give out two tasks 任务", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM18EBMSRC84KGN0SVTN"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM18EBMSRC84KGN0SVTN', 1800000000.040441);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM18EBMSRC84KGN0SVTN', 1800000000.040441);
INSERT INTO lost VALUES (1, 'gone', 1800000000.0248742);
INSERT INTO outbox VALUES ('01MCC5RP0R6MYRPWN8NCCWK4T8', '01MCC5RM18EBMSRC84KGN0SVTN', 'telegram:chat:3001', '{"chat_id": "3001"}', '**Working: 0 of 2** · 0:02
░░░░░░░░░░░░░░░░░░░░ 0 %
▸ Part 1 · 0:02
▸ Part 2 · 0:02', 'progress', 'sending', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.072348, 1800000002.0961277);
INSERT INTO steps VALUES ('01MCC5RM18EBMSRC84KGN0SVTN', '01MCC5RM1KYD44ZPRJQA2T4X7Q', 'model', 'claude-sonnet-5-5', 1800000000.0513084, 1800000000.0694766, '{"uuid": "01MCC5RM21FA1ZA7348WQ82G9Q", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 54, "cacheReadTokens": 0, "cacheWriteTokens": 2606}, "costUsd": 0.007055, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO steps VALUES ('01MCC5RM18EBMSRC84KGN0SVTN', 'toolu_000000000000000000000004', 'tool', 'task', 1800000000.0656033, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM18EBMSRC84KGN0SVTN', 'toolu_000000000000000000000005', 'tool', 'task', 1800000000.065776, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM18EBMSRC84KGN0SVTN', '01MCC5RM25EQ1145YESS4E89DN', 'tool', 'subagent toolu_000000000000000000000004', 1800000000.0696566, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM18EBMSRC84KGN0SVTN', '01MCC5RM26X59FSE78F8S832Z5', 'tool', 'subagent toolu_000000000000000000000005', 1800000000.0703216, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RM18EBMSRC84KGN0SVTN', 'telegram:chat:3001', 'running', 1800000000.0426302, NULL);
