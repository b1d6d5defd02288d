INSERT INTO approvals VALUES ('01MCC5RM5HFQZ8FF9YFRE315M9', '01MCC5RM3RF9DYFQRYHYNZE9K9', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM3RF9DYFQRYHYNZE9K9", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000000.1778677, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.120554);
INSERT INTO inbox VALUES ('01MCC5RM3RF9DYFQRYHYNZE9K9', 'telegram:chat:-3200', '3001', 1800000000.120554, 1800000000.1240196, 'claimed', NULL, '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM3RF9DYFQRYHYNZE9K9"}', '1');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM3RF9DYFQRYHYNZE9K9', 1800000000.120554);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM3RF9DYFQRYHYNZE9K9', 1800000000.120554);
INSERT INTO outbox VALUES ('01MCC5RM5S08R8V2TCJKWE5677', '01MCC5RM5HFQZ8FF9YFRE315M9', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1", "approval": "01MCC5RM5HFQZ8FF9YFRE315M9", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve E315M9 or deny E315M9 (as commands), within 30 minutes. approve E315M9 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, 1800000000.185753, 1800000000.195163, NULL, NULL, 0, 0);
INSERT INTO outbox VALUES ('01MCC5RM5SAND67YQGEPQXTNF9', '01MCC5RM5HFQZ8FF9YFRE315M9', 'telegram:chat:3009', '{"chat_id": "3009", "approval": "01MCC5RM5HFQZ8FF9YFRE315M9", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve E315M9 or deny E315M9 (as commands), within 30 minutes. approve E315M9 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, 1800000000.18582, 1800000000.1977563, NULL, NULL, 0, 0);
INSERT INTO steps VALUES ('01MCC5RM3RF9DYFQRYHYNZE9K9', '01MCC5RM4QQ8NX47NQ0HKHQY5R', 'model', 'claude-sonnet-5-5', 1800000000.1521308, 1800000000.1721916, '{"uuid": "01MCC5RM51ZASVA49C2NRAJ8W8", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2608}, "costUsd": 0.00669, "providerRequestId": "req_000000000000000000000003"}');
