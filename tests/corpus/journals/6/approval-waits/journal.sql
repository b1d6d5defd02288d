INSERT INTO approvals VALUES ('01MCC5RN8YSW67D4GXGYFT99DH', '01MCC5RN2APYC7C71JMWR4Q1HN', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RN2APYC7C71JMWR4Q1HN", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000001.3107355, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000001.0999742);
INSERT INTO inbox VALUES ('01MCC5RN2APYC7C71JMWR4Q1HN', 'telegram:chat:-3200', '3001', 1800000001.0999742, 1800000001.1029882, 'claimed', NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000001000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RN2APYC7C71JMWR4Q1HN"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RN2APYC7C71JMWR4Q1HN', 1800000001.0999742);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RN2APYC7C71JMWR4Q1HN', 1800000001.0999742);
INSERT INTO lost VALUES (1, 'gone', 1800000001.0703416);
INSERT INTO outbox VALUES ('01MCC5RNA80XQH5D114FQSXWBX', '01MCC5RN8YSW67D4GXGYFT99DH', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1", "approval": "01MCC5RN8YSW67D4GXGYFT99DH", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve FT99DH or deny FT99DH (as commands), within 30 minutes. approve FT99DH chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.3528345, 1800000001.3949177);
INSERT INTO outbox VALUES ('01MCC5RNA8W8C9QZ7C1GVK2YNE', '01MCC5RN8YSW67D4GXGYFT99DH', 'telegram:chat:3009', '{"chat_id": "3009", "approval": "01MCC5RN8YSW67D4GXGYFT99DH", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve FT99DH or deny FT99DH (as commands), within 30 minutes. approve FT99DH chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.3529458, 1800000001.4138362);
INSERT INTO steps VALUES ('01MCC5RN2APYC7C71JMWR4Q1HN', '01MCC5RN6NA1DTJEHPXWRCW7WB', 'model', 'claude-sonnet-5-5', 1800000001.2380416, 1800000001.3089693, '{"uuid": "01MCC5RN7GG0QZ1TTCEGJCMZSF", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2608}, "costUsd": 0.00669, "providerRequestId": "req_000000000000000000000003"}');
