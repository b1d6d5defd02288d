INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.294135);
INSERT INTO inbox VALUES ('01MCC5RM96HQ6WSHPZ9HRJWRHK', 'telegram:chat:3001', '3001', 1800000000.294135, 1800000000.3232043, 'in_turn', '01MCC5RM96HQ6WSHPZ9HRJWRHK', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "give out two tasks 任务", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM96HQ6WSHPZ9HRJWRHK"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM96HQ6WSHPZ9HRJWRHK', 1800000000.294135);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM96HQ6WSHPZ9HRJWRHK', 1800000000.294135);
INSERT INTO lost VALUES (1, 'gone', 1800000000.230727);
INSERT INTO outbox VALUES ('01MCC5RPCJFSSHHP8FXDHE6N2J', '01MCC5RM96HQ6WSHPZ9HRJWRHK', 'telegram:chat:3001', '{"chat_id": "3001"}', '**Working: 0 of 2** · 0:02
░░░░░░░░░░░░░░░░░░░░ 0 %
▸ Part 1 · 0:02
▸ Part 2 · 0:02', 'progress', 'sending', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.4502437, 1800000002.4567716, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM96HQ6WSHPZ9HRJWRHK', '01MCC5RMB8WR4CWFMWMJRZK3Y7', 'model', 'claude-sonnet-5-5', 1800000000.3601973, 1800000000.4355345, '{"uuid": "01MCC5RMCTC3PFWTSBRKBANJFM", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 54, "cacheReadTokens": 0, "cacheWriteTokens": 2320}, "costUsd": 0.00634, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO steps VALUES ('01MCC5RM96HQ6WSHPZ9HRJWRHK', 'toolu_000000000000000000000004', 'tool', 'task', 1800000000.4117188, NULL, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM96HQ6WSHPZ9HRJWRHK', 'toolu_000000000000000000000005', 'tool', 'task', 1800000000.411883, NULL, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM96HQ6WSHPZ9HRJWRHK', '01MCC5RMDZYMPTVDW0YDJRYM9H', 'tool', 'subagent', 1800000000.4472976, NULL, NULL, 'toolu_000000000000000000000004');
INSERT INTO steps VALUES ('01MCC5RM96HQ6WSHPZ9HRJWRHK', '01MCC5RMDZYMPTVDW0YDJRYM9M', 'tool', 'subagent', 1800000000.4479005, NULL, NULL, 'toolu_000000000000000000000005');
INSERT INTO turns VALUES ('01MCC5RM96HQ6WSHPZ9HRJWRHK', 'telegram:chat:3001', 'running', 1800000000.3232043, NULL);
