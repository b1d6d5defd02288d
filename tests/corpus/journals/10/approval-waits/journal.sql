INSERT INTO approvals VALUES ('01MCC5RV9A7J7ZTXDP5ZAB7VM2', '01MCC5RV6Q4CR0BCNA5V9N70G2', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RV6Q4CR0BCNA5V9N70G2", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false}', 1800000007.4666972, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000007.3840394, NULL);
INSERT INTO inbox VALUES ('01MCC5RV6Q4CR0BCNA5V9N70G2', 'telegram:chat:-3200', '3001', 1800000007.3840394, 1800000007.3900273, 'in_turn', '01MCC5RV6Q4CR0BCNA5V9N70G2', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000007000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RV6Q4CR0BCNA5V9N70G2"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RV6Q4CR0BCNA5V9N70G2', 1800000007.3840394);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RV6Q4CR0BCNA5V9N70G2', 1800000007.3840394);
INSERT INTO lost VALUES (1, 'gone', 1800000007.3261237);
INSERT INTO outbox VALUES ('01MCC5RV9MWZJRXP2QZ82WB2X9', '01MCC5RV9A7J7ZTXDP5ZAB7VM2', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve AB7VM2 or deny AB7VM2 (as commands), within 30 minutes. approve AB7VM2 chat allows exactly this for this chat; always is for operators.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000007.476871, 1800000007.4814217, '01MCC5RV9A7J7ZTXDP5ZAB7VM2', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RVE7YW5Q0EBKPWNA74MY', '01MCC5RV9A7J7ZTXDP5ZAB7VM2', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve AB7VM2 or deny AB7VM2 (as commands), within 30 minutes. approve AB7VM2 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000007.6233258, 1800000007.6588857, '01MCC5RV9A7J7ZTXDP5ZAB7VM2', '[]');
INSERT INTO steps VALUES ('01MCC5RV6Q4CR0BCNA5V9N70G2', '01MCC5RV71QKSSVDTWVFY32H0G', 'model', 'claude-sonnet-5-5', 1800000007.3937645, 1800000007.4631743, '{"uuid": "01MCC5RV951WF89YKSDZJT96CX", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2395}, "costUsd": 0.0061575, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RV6Q4CR0BCNA5V9N70G2', 'telegram:chat:-3200', 'suspended', 1800000007.3900273, NULL);
