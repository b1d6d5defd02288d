INSERT INTO approvals VALUES ('01MCC5RMGMW6N4GQ23P9CP4NSM', '01MCC5RMD7VBDTVCWJPAN9MTPX', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RMD7VBDTVCWJPAN9MTPX", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false}', 1800000000.5322495, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.423637, NULL);
INSERT INTO inbox VALUES ('01MCC5RMD7VBDTVCWJPAN9MTPX', 'telegram:chat:-3200', '3001', 1800000000.423637, 1800000000.4253638, 'in_turn', '01MCC5RMD7VBDTVCWJPAN9MTPX', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "requestId": "01MCC5RMD7VBDTVCWJPAN9MTPX"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RMD7VBDTVCWJPAN9MTPX', 1800000000.423637);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RMD7VBDTVCWJPAN9MTPX', 1800000000.423637);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RMD7VBDTVCWJPAN9MTPX","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RMFFEXXQMHVPEZ5WAEFH.jsonl', CAST('{"v":1,"uuid":"01MCC5RMFRSJ8BRQYVW22ADD0T","parentUuid":null,"type":"turn_start","ts":1800000000504,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMFFEXXQMHVPEZ5WAEFH","requestId":"01MCC5RMD7VBDTVCWJPAN9MTPX","data":{"frame":{"model":"claude-sonnet-5-5","digest":"182552605d618a5b","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RMFRSJ8BRQYVW22ADD0V","parentUuid":null,"type":"user","ts":1800000000504,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMFFEXXQMHVPEZ5WAEFH","requestId":"01MCC5RMD7VBDTVCWJPAN9MTPX","message":{"role":"user","content":[{"type":"text","text":"<turn_context-6c931111>{\"requestId\": \"01MCC5RMD7VBDTVCWJPAN9MTPX\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-6c931111>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RMFFEXXQMHVPEZ5WAEFH.jsonl', CAST('{"v":1,"uuid":"01MCC5RMG5EPDDFVDWJ73WM1F9","parentUuid":"01MCC5RMFRSJ8BRQYVW22ADD0V","type":"assistant","ts":1800000000517,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RMFFEXXQMHVPEZ5WAEFH","requestId":"01MCC5RMD7VBDTVCWJPAN9MTPX","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2395},"costUsd":0.0061575}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.247139);
INSERT INTO outbox VALUES ('01MCC5RMKC2YZJ4T5XDJX1ETV3', '01MCC5RMGMW6N4GQ23P9CP4NSM', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve CP4NSM or deny CP4NSM (as commands), within 30 minutes. approve CP4NSM chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.6203969, 1800000000.661915, '01MCC5RMGMW6N4GQ23P9CP4NSM', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5RMKC898F5C586Z91HPSN', '01MCC5RMGMW6N4GQ23P9CP4NSM', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve CP4NSM or deny CP4NSM (as commands), within 30 minutes. approve CP4NSM chat allows exactly this for this chat; always is for operators.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.6204698, 1800000000.6623755, '01MCC5RMGMW6N4GQ23P9CP4NSM', '["once", "chat", "always", "deny"]');
INSERT INTO steps VALUES ('01MCC5RMD7VBDTVCWJPAN9MTPX', '01MCC5RMFRSJ8BRQYVW22ADD0W', 'model', 'claude-sonnet-5-5', 1800000000.504741, 1800000000.5313904, '{"uuid": "01MCC5RMG5EPDDFVDWJ73WM1F9", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2395}, "costUsd": 0.0061575, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RMD7VBDTVCWJPAN9MTPX', 'telegram:chat:-3200', 'suspended', 1800000000.4253638, NULL);
