INSERT INTO approvals VALUES ('01MCC5RM6FTT2M5GKFB7QCGFGH', '01MCC5RM4P59TGT8FVRBP8JAH8', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM4P59TGT8FVRBP8JAH8", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false}', 1800000000.2071614, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.1504838, NULL);
INSERT INTO inbox VALUES ('01MCC5RM4P59TGT8FVRBP8JAH8', 'telegram:chat:-3200', '3001', 1800000000.1504838, 1800000000.1516516, 'in_turn', '01MCC5RM4P59TGT8FVRBP8JAH8', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "@shipmate_bot which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RM4P59TGT8FVRBP8JAH8"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM4P59TGT8FVRBP8JAH8', 1800000000.1504838);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM4P59TGT8FVRBP8JAH8', 1800000000.1504838);
INSERT INTO lost VALUES (1, 'gone', 1800000000.1286707);
INSERT INTO outbox VALUES ('01MCC5RM6MBJAQ86F2Q9PTKDEF', '01MCC5RM6FTT2M5GKFB7QCGFGH', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve QCGFGH or deny QCGFGH (as commands), within 30 minutes. approve QCGFGH chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.2123492, 1800000000.2160184, '01MCC5RM6FTT2M5GKFB7QCGFGH', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RM6MDCJNZV0RAPZ60F40', '01MCC5RM6FTT2M5GKFB7QCGFGH', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve QCGFGH or deny QCGFGH (as commands), within 30 minutes. approve QCGFGH chat allows exactly this for this chat; always is for operators.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.212424, 1800000000.2167435, '01MCC5RM6FTT2M5GKFB7QCGFGH', '["once", "chat", "always", "deny"]');
INSERT INTO steps VALUES ('01MCC5RM4P59TGT8FVRBP8JAH8', '01MCC5RM4V0JXVB2YFMQ0E8WP9', 'model', 'claude-sonnet-5-5', 1800000000.155254, 1800000000.1793032, '{"uuid": "01MCC5RM5GAXAWSCCP5PP46ZR4", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2398}, "costUsd": 0.006165, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM4P59TGT8FVRBP8JAH8', 'telegram:chat:-3200', 'suspended', 1800000000.1516516, NULL);
