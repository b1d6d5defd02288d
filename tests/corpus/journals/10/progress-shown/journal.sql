INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.2824988, NULL);
INSERT INTO inbox VALUES ('01MCC5RM8TWXKGXNE6W3X4J5RB', 'telegram:chat:3001', '3001', 1800000000.2824988, 1800000000.2852821, 'in_turn', '01MCC5RM8TWXKGXNE6W3X4J5RB', NULL, NULL, '1', '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "give out two tasks 任务", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM8TWXKGXNE6W3X4J5RB"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM8TWXKGXNE6W3X4J5RB', 1800000000.2824988);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM8TWXKGXNE6W3X4J5RB', 1800000000.2824988);
INSERT INTO lost VALUES (1, 'gone', 1800000000.2552943);
INSERT INTO outbox VALUES ('01MCC5RP9HPYZXFNZFHFEMV3CT', '01MCC5RM8TWXKGXNE6W3X4J5RB', 'telegram:chat:3001', '{"chat_id": "3001"}', '**Working: 0 of 2** · 0:02
░░░░░░░░░░░░░░░░░░░░ 0 %
▸ Part 1 · 0:01
▸ Part 2 · 0:01', 'progress', 'sending', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.353065, 1800000002.3579946, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM8TWXKGXNE6W3X4J5RB', '01MCC5RM91R7BBK19BZ7PJ9GD3', 'model', 'claude-sonnet-5-5', 1800000000.2892435, 1800000000.3416653, '{"uuid": "01MCC5RMAKHW619QXFFH4PX7KG", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 54, "cacheReadTokens": 0, "cacheWriteTokens": 2396}, "costUsd": 0.00653, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO steps VALUES ('01MCC5RM8TWXKGXNE6W3X4J5RB', 'toolu_000000000000000000000004', 'tool', 'task', 1800000000.3401518, NULL, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM8TWXKGXNE6W3X4J5RB', 'toolu_000000000000000000000005', 'tool', 'task', 1800000000.3403974, NULL, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM8TWXKGXNE6W3X4J5RB', '01MCC5RMAWYA6J7KWND33QE6TH', 'tool', 'subagent', 1800000000.3480399, NULL, NULL, 'toolu_000000000000000000000004');
INSERT INTO steps VALUES ('01MCC5RM8TWXKGXNE6W3X4J5RB', '01MCC5RMAWYA6J7KWND33QE6TM', 'tool', 'subagent', 1800000000.3487904, NULL, NULL, 'toolu_000000000000000000000005');
INSERT INTO turns VALUES ('01MCC5RM8TWXKGXNE6W3X4J5RB', 'telegram:chat:3001', 'running', 1800000000.2852821, NULL);
