INSERT INTO chats VALUES ('telegram:chat:3001', 1800000000.1392844);
INSERT INTO inbox VALUES ('01MCC5RM4BE6ECX0AEJD6W9484', 'telegram:chat:3001', '3001', 1800000000.1392844, 1800000000.1471527, 'claimed', NULL, '{"channel": "telegram", "chatId": "3001", "chatKey": "telegram:chat:3001", "chatType": "direct", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:3001:1"], "ts": 1800000000000, "target": {"chat_id": "3001"}, "kind": "message", "addressed": "direct", "text": "give out two tasks 任务", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM4BE6ECX0AEJD6W9484"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3001:1', '01MCC5RM4BE6ECX0AEJD6W9484', 1800000000.1392844);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM4BE6ECX0AEJD6W9484', 1800000000.1392844);
INSERT INTO lost VALUES (1, 'gone', 1800000000.107505);
INSERT INTO outbox VALUES ('01MCC5RP4Z7K2KAHBGPMAMN6XS', '01MCC5RM4BE6ECX0AEJD6W9484', 'telegram:chat:3001', '{"chat_id": "3001"}', '**Working: 0 of 2** · 0:02
░░░░░░░░░░░░░░░░░░░░ 0 %
▸ Part 1 · 0:01
▸ Part 2 · 0:01', 'progress', 'sending', '2', NULL, 1800000002.2070584, 1800000002.2138355, NULL, NULL, 0, 0);
INSERT INTO steps VALUES ('01MCC5RM4BE6ECX0AEJD6W9484', '01MCC5RM5GNGKYMYW9KHYH2Y1Y', 'model', 'claude-sonnet-5-5', 1800000000.176831, 1800000000.2007685, '{"uuid": "01MCC5RM5ZHMGQHRGSZM9CJF8F", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 54, "cacheReadTokens": 0, "cacheWriteTokens": 2606}, "costUsd": 0.007055, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO steps VALUES ('01MCC5RM4BE6ECX0AEJD6W9484', 'toolu_000000000000000000000004', 'tool', 'task', 1800000000.1932392, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM4BE6ECX0AEJD6W9484', 'toolu_000000000000000000000005', 'tool', 'task', 1800000000.1937845, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM4BE6ECX0AEJD6W9484', '01MCC5RM69ME0MGD4PAGFT2WZQ', 'tool', 'subagent toolu_000000000000000000000004', 1800000000.2012885, NULL, NULL);
INSERT INTO steps VALUES ('01MCC5RM4BE6ECX0AEJD6W9484', '01MCC5RM6AJ5ZWNJ4H844DGFKC', 'tool', 'subagent toolu_000000000000000000000005', 1800000000.2028396, NULL, NULL);
