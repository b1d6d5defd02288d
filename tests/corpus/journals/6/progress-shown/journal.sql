INSERT INTO chats VALUES ('telegram:chat:3001', 1800000001.2090144);
INSERT INTO inbox VALUES ('01MCC5RN5DM6KVQN4PHM145410', 'telegram:chat:3001', '3001', 1800000001.2090144, 1800000001.2214417, 'claimed', NULL, '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000001000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "give out two tasks 任务", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RN5DM6KVQN4PHM145410"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RN5DM6KVQN4PHM145410', 1800000001.2090144);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RN5DM6KVQN4PHM145410', 1800000001.2090144);
INSERT INTO lost VALUES (1, 'gone', 1800000001.0460281);
INSERT INTO outbox VALUES ('01MCC5RQHVYE262SJZEFTJSDG7', '01MCC5RN5DM6KVQN4PHM145410', 'telegram:chat:3001', '{"chat_id": "3001"}', '**Working: 0 of 2** · 0:02
░░░░░░░░░░░░░░░░░░░░ 0 %
▸ Part 1 · 0:01
▸ Part 2 · 0:01', 'progress', 'sending', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000003.6439009, 1800000003.7848191);
INSERT INTO steps VALUES ('01MCC5RN5DM6KVQN4PHM145410', '01MCC5RN8PVTH1KKK112T5PM85', 'model', 'claude-sonnet-5-5', 1800000001.3032458, 1800000001.516672, '{"uuid": "01MCC5RNE5RHKW9ZXWJT8BKCV8", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 54, "cacheReadTokens": 0, "cacheWriteTokens": 2606}, "costUsd": 0.007055, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO steps VALUES ('01MCC5RN5DM6KVQN4PHM145410', 'toolu_000000000000000000000004', 'tool', 'task', 1800000001.4933324, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RN5DM6KVQN4PHM145410', 'toolu_000000000000000000000005', 'tool', 'task', 1800000001.4937942, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RN5DM6KVQN4PHM145410', '01MCC5RNHR25DHD30ASPSSEAV0', 'tool', 'subagent toolu_000000000000000000000004', 1800000001.5928993, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RN5DM6KVQN4PHM145410', '01MCC5RNK06XBND3G0YKJ7NNCY', 'tool', 'subagent toolu_000000000000000000000005', 1800000001.6329432, NULL, NULL);
