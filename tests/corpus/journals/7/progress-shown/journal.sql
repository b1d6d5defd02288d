INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.3484504);
INSERT INTO inbox VALUES ('01MCC5RMAWVZ8MQQ9NB2P0YX68', 'telegram:chat:3001', '3001', 1800000000.3484504, 1800000000.3688135, 'in_turn', '01MCC5RMAWVZ8MQQ9NB2P0YX68', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "give out two tasks 任务", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMAWVZ8MQQ9NB2P0YX68"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RMAWVZ8MQQ9NB2P0YX68', 1800000000.3484504);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMAWVZ8MQQ9NB2P0YX68', 1800000000.3484504);
INSERT INTO lost VALUES (1, 'gone', 1800000000.2589078);
INSERT INTO outbox VALUES ('01MCC5RPEYJRBJB3B0ACZ1E1B0', '01MCC5RMAWVZ8MQQ9NB2P0YX68', 'telegram:chat:3001', '{"chat_id": "3001"}', '**Working: 0 of 2** · 0:02
░░░░░░░░░░░░░░░░░░░░ 0 %
▸ Part 1 · 0:02
▸ Part 2 · 0:02', 'progress', 'sending', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.5262878, 1800000002.560092);
INSERT INTO steps VALUES ('01MCC5RMAWVZ8MQQ9NB2P0YX68', '01MCC5RMCGBC2BAC0PDVCXH21F', 'model', 'claude-sonnet-5-5', 1800000000.4009695, 1800000000.4810536, '{"uuid": "01MCC5RMDXV3GC70Y13FMG8PPN", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 54, "cacheReadTokens": 0, "cacheWriteTokens": 2606}, "costUsd": 0.007055, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO steps VALUES ('01MCC5RMAWVZ8MQQ9NB2P0YX68', 'toolu_000000000000000000000004', 'tool', 'task', 1800000000.447466, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RMAWVZ8MQQ9NB2P0YX68', 'toolu_000000000000000000000005', 'tool', 'task', 1800000000.4480717, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RMAWVZ8MQQ9NB2P0YX68', '01MCC5RMF1QM3FVMEFMJDPQJ6F', 'tool', 'subagent toolu_000000000000000000000004', 1800000000.481696, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RMAWVZ8MQQ9NB2P0YX68', '01MCC5RMF3FDGP5DHHE25E9TWN', 'tool', 'subagent toolu_000000000000000000000005', 1800000000.4834862, NULL, NULL);
INSERT INTO turns VALUES ('01MCC5RMAWVZ8MQQ9NB2P0YX68', 'telegram:chat:3001', 'running', 1800000000.3688135, NULL);
