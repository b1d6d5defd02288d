INSERT INTO approvals VALUES ('01MCC5RM3MPE3YRP1584VC7HCQ', '01MCC5RM33NP6WVQQ0R5VFA1D8', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM33NP6WVQQ0R5VFA1D8", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000000.1164575, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.1000545);
INSERT INTO inbox VALUES ('01MCC5RM33NP6WVQQ0R5VFA1D8', 'telegram:chat:-3200', '3001', 1800000000.1000545, 1800000000.101481, 'in_turn', '01MCC5RM33NP6WVQQ0R5VFA1D8', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM33NP6WVQQ0R5VFA1D8"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM33NP6WVQQ0R5VFA1D8', 1800000000.1000545);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM33NP6WVQQ0R5VFA1D8', 1800000000.1000545);
INSERT INTO lost VALUES (1, 'gone', 1800000000.0634143);
INSERT INTO outbox VALUES ('01MCC5RM43YTK2TAGWGT21G3GP', '01MCC5RM3MPE3YRP1584VC7HCQ', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve VC7HCQ or deny VC7HCQ (as commands), within 30 minutes. approve VC7HCQ chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.1314132, 1800000000.1397693, '01MCC5RM3MPE3YRP1584VC7HCQ', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RM43YTK2TAGWGT21G3GQ', '01MCC5RM3MPE3YRP1584VC7HCQ', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve VC7HCQ or deny VC7HCQ (as commands), within 30 minutes. approve VC7HCQ chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.1314797, 1800000000.142287, '01MCC5RM3MPE3YRP1584VC7HCQ', '["once", "chat", "always", "deny"]');
INSERT INTO steps VALUES ('01MCC5RM33NP6WVQQ0R5VFA1D8', '01MCC5RM38BW4KXHSV1X6YE34E', 'model', 'claude-sonnet-5-5', 1800000000.104301, 1800000000.1146955, '{"uuid": "01MCC5RM3AXEGWB4EGEJQ19Q2W", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2322}, "costUsd": 0.005975, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM33NP6WVQQ0R5VFA1D8', 'telegram:chat:-3200', 'suspended', 1800000000.101481, NULL);
