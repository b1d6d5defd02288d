INSERT INTO approvals VALUES ('01MCC5RM5BPPDX6WCMVCYJZN2H', '01MCC5RM3WNA4QTKDY3FEZD0Y0', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM3WNA4QTKDY3FEZD0Y0", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000000.1718364, 'approved', 'telegram:3009', 'once', 1800000000.2000687);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.1250463);
INSERT INTO inbox VALUES ('01MCC5RM3WNA4QTKDY3FEZD0Y0', 'telegram:chat:-3200', '3001', 1800000000.1250463, 1800000000.1291876, 'claimed', NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM3WNA4QTKDY3FEZD0Y0"}', '1');
INSERT INTO inbox VALUES ('01MCC5RM641WVJEJM9WGFH0232', 'telegram:chat:-3200', '3009', 1800000000.19615, 1800000000.1979554, 'claimed', NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000000195, "target": {"chat_id": "-3200", "press": "9000"}, "kind": "message", "addressed": "command", "text": "", "command": {"name": "approve", "args": "01MCC5RM5BPPDX6WCMVCYJZN2H once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM641WVJEJM9WGFH0232"}', NULL);
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM3WNA4QTKDY3FEZD0Y0', 1800000000.1250463);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RM641WVJEJM9WGFH0232', 1800000000.19615);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM3WNA4QTKDY3FEZD0Y0', 1800000000.1250463);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RM641WVJEJM9WGFH0232', 1800000000.19615);
INSERT INTO outbox VALUES ('01MCC5RM5EHAXPD5D9PXX5PDG2', '01MCC5RM5BPPDX6WCMVCYJZN2H', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1", "approval": "01MCC5RM5BPPDX6WCMVCYJZN2H", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve YJZN2H or deny YJZN2H (as commands), within 30 minutes. approve YJZN2H chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, 1800000000.1748276, 1800000000.1842728);
INSERT INTO outbox VALUES ('01MCC5RM5EQRNW33SX3EB1KYA5', '01MCC5RM5BPPDX6WCMVCYJZN2H', 'telegram:chat:3009', '{"chat_id": "3009", "approval": "01MCC5RM5BPPDX6WCMVCYJZN2H", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve YJZN2H or deny YJZN2H (as commands), within 30 minutes. approve YJZN2H chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, 1800000000.1748807, 1800000000.186583);
INSERT INTO steps VALUES ('01MCC5RM3WNA4QTKDY3FEZD0Y0', '01MCC5RM4PB08FJCAH3X9VN4KW', 'model', 'claude-sonnet-5-5', 1800000000.150777, 1800000000.170722, '{"uuid": "01MCC5RM4XC3MR096SGCGG2FPA", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2608}, "costUsd": 0.00669, "providerRequestId": "req_000000000000000000000003"}');
