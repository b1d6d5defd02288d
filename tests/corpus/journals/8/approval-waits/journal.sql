INSERT INTO approvals VALUES ('01MCC5RM2DGXF052YZKA0QAE51', '01MCC5RM1N676FZ2REHYD20NBC', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM1N676FZ2REHYD20NBC", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false}', 1800000000.0778852, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.0536735);
INSERT INTO inbox VALUES ('01MCC5RM1N676FZ2REHYD20NBC', 'telegram:chat:-3200', '3001', 1800000000.0536735, 1800000000.0562587, 'in_turn', '01MCC5RM1N676FZ2REHYD20NBC', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM1N676FZ2REHYD20NBC"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM1N676FZ2REHYD20NBC', 1800000000.0536735);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM1N676FZ2REHYD20NBC', 1800000000.0536735);
INSERT INTO lost VALUES (1, 'gone', 1800000000.0367122);
INSERT INTO outbox VALUES ('01MCC5RM2HKW725S068CTF5103', '01MCC5RM2DGXF052YZKA0QAE51', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1", "approval": "01MCC5RM2DGXF052YZKA0QAE51", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve 0QAE51 or deny 0QAE51 (as commands), within 30 minutes. approve 0QAE51 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.0815785, 1800000000.0868845);
INSERT INTO outbox VALUES ('01MCC5RM2HKW725S068CTF5104', '01MCC5RM2DGXF052YZKA0QAE51', 'telegram:chat:3009', '{"chat_id": "3009", "approval": "01MCC5RM2DGXF052YZKA0QAE51", "choices": "once chat always deny"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve 0QAE51 or deny 0QAE51 (as commands), within 30 minutes. approve 0QAE51 chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.0816743, 1800000000.0876267);
INSERT INTO steps VALUES ('01MCC5RM1N676FZ2REHYD20NBC', '01MCC5RM20K26G5M1DX0Z4HJ10', 'model', 'claude-sonnet-5-5', 1800000000.0641155, 1800000000.0751626, '{"uuid": "01MCC5RM27XTNH910Z1BMM484A", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2608}, "costUsd": 0.00669, "providerRequestId": "req_000000000000000000000003"}');
INSERT INTO turns VALUES ('01MCC5RM1N676FZ2REHYD20NBC', 'telegram:chat:-3200', 'suspended', 1800000000.0562587, NULL);
