INSERT INTO approvals VALUES ('01MCC5RNK09KJ7BHSJARB1NQZZ', '01MCC5RMYB993SG0J732ZVVPG8', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RMYB993SG0J732ZVVPG8", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false}', 1800000001.6329489, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.9715397, NULL);
INSERT INTO inbox VALUES ('01MCC5RMYB993SG0J732ZVVPG8', 'telegram:chat:-3200', '3001', 1800000000.9715397, 1800000000.9873435, 'in_turn', '01MCC5RMYB993SG0J732ZVVPG8', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "rating": null, "requestId": "01MCC5RMYB993SG0J732ZVVPG8"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RMYB993SG0J732ZVVPG8', 1800000000.9715397);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMYB993SG0J732ZVVPG8', 1800000000.9715397);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RMYB993SG0J732ZVVPG8","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RN02HYWMNGH8ZAYBNRB1.jsonl', CAST('{"v":1,"uuid":"01MCC5RN04XYWC23NCT2B8X9BD","parentUuid":null,"type":"turn_start","ts":1800000001028,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RN02HYWMNGH8ZAYBNRB1","requestId":"01MCC5RMYB993SG0J732ZVVPG8","data":{"frame":{"model":"claude-sonnet-5-5","digest":"e0fd1e3668d64188","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RN04XYWC23NCT2B8X9BE","parentUuid":null,"type":"user","ts":1800000001028,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RN02HYWMNGH8ZAYBNRB1","requestId":"01MCC5RMYB993SG0J732ZVVPG8","message":{"role":"user","content":[{"type":"text","text":"<turn_context-c40fd77a>{\"requestId\": \"01MCC5RMYB993SG0J732ZVVPG8\", \"time\": \"2027-01-15T08:00:01Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-c40fd77a>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RN02HYWMNGH8ZAYBNRB1.jsonl', CAST('{"v":1,"uuid":"01MCC5RN07PSXSHF55H47GCDYB","parentUuid":"01MCC5RN04XYWC23NCT2B8X9BE","type":"assistant","ts":1800000001031,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RN02HYWMNGH8ZAYBNRB1","requestId":"01MCC5RMYB993SG0J732ZVVPG8","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2395},"costUsd":0.0061575}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.8626971);
INSERT INTO outbox VALUES ('01MCC5RNMQX86CC1Q49SSVZ2B4', '01MCC5RNK09KJ7BHSJARB1NQZZ', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve B1NQZZ or deny B1NQZZ (as commands), within 30 minutes. approve B1NQZZ chat allows exactly this for this chat; always is for operators.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.6879518, 1800000001.7372777, '01MCC5RNK09KJ7BHSJARB1NQZZ', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RNXG34B0CCEZ585G592X', '01MCC5RNK09KJ7BHSJARB1NQZZ', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve B1NQZZ or deny B1NQZZ (as commands), within 30 minutes. approve B1NQZZ chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.9681468, 1800000002.2564497, '01MCC5RNK09KJ7BHSJARB1NQZZ', '[]');
INSERT INTO steps VALUES ('01MCC5RMYB993SG0J732ZVVPG8', '01MCC5RN04XYWC23NCT2B8X9BF', 'model', 'claude-sonnet-5-5', 1800000001.0285354, 1800000001.6223273, '{"uuid": "01MCC5RN07PSXSHF55H47GCDYB", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2395}, "costUsd": 0.0061575, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMYB993SG0J732ZVVPG8', 'telegram:chat:-3200', 'suspended', 1800000000.9873435, NULL);
