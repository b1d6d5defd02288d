INSERT INTO approvals VALUES ('01MCC5RM2NNS79C336FCQZYG08', '01MCC5RM1NJ063D9YSM45PTMF7', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM1NJ063D9YSM45PTMF7", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000000.0858507, 'approved', 'telegram:3009', 'once', 1800000000.1103005);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.053472);
INSERT INTO inbox VALUES ('01MCC5RM1NJ063D9YSM45PTMF7', 'telegram:chat:-3200', '3001', 1800000000.053472, 1800000000.0554693, 'in_turn', '01MCC5RM1NJ063D9YSM45PTMF7', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM1NJ063D9YSM45PTMF7"}');
INSERT INTO inbox VALUES ('01MCC5RM3CV2AXJZSVDYEHQN4P', 'telegram:chat:-3200', '3009', 1800000000.108367, 1800000000.108367, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000000108, "target": {"chat_id": "-3200", "press": "9000"}, "kind": "message", "addressed": "command", "text": "", "command": {"name": "approve", "args": "01MCC5RM2NNS79C336FCQZYG08 once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM3CV2AXJZSVDYEHQN4P"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM1NJ063D9YSM45PTMF7', 1800000000.053472);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RM3CV2AXJZSVDYEHQN4P', 1800000000.108367);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM1NJ063D9YSM45PTMF7', 1800000000.053472);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RM3CV2AXJZSVDYEHQN4P', 1800000000.108367);
INSERT INTO lost VALUES (1, 'gone', 1800000000.0260901);
INSERT INTO outbox VALUES ('01MCC5RM2S59PH67AVAT1E2T3K', '01MCC5RM2NNS79C336FCQZYG08', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1", "approval": "01MCC5RM2NNS79C336FCQZYG08", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve QZYG08 or deny QZYG08 (as commands), within 30 minutes. approve QZYG08 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.0901525, 1800000000.096876);
INSERT INTO outbox VALUES ('01MCC5RM2SJ2J5KTQCRH4XZC37', '01MCC5RM2NNS79C336FCQZYG08', 'telegram:chat:3009', '{"chat_id": "3009", "approval": "01MCC5RM2NNS79C336FCQZYG08", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve QZYG08 or deny QZYG08 (as commands), within 30 minutes. approve QZYG08 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.0905175, 1800000000.0985906);
INSERT INTO steps VALUES ('01MCC5RM1NJ063D9YSM45PTMF7', '01MCC5RM28XCGBKW7V61VD72S8', 'model', 'claude-sonnet-5-5', 1800000000.072936, 1800000000.083082, '{"uuid": "01MCC5RM2DRFATHGYRAZR720ZW", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2608}, "costUsd": 0.00669, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO turns VALUES ('01MCC5RM1NJ063D9YSM45PTMF7', 'telegram:chat:-3200', 'suspended', 1800000000.0554693, NULL);
