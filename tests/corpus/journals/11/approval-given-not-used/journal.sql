INSERT INTO approvals VALUES ('01MCC5SA7BVZ38J8NBAXMSH8JJ', '01MCC5S838Y40ZMX5TPKEA39XA', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5S838Y40ZMX5TPKEA39XA", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "a rule of this installation wants it approved", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false}', 1800000022.7640285, 'approved', 'telegram:3009', 'once', 1800000028.307464);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000020.5846355, NULL);
INSERT INTO chats VALUES ('telegram:chat:3009', 1800000027.9864998, NULL);
INSERT INTO inbox VALUES ('01MCC5S838Y40ZMX5TPKEA39XA', 'telegram:chat:-3200', '3001', 1800000020.5846355, 1800000020.6611953, 'in_turn', '01MCC5S838Y40ZMX5TPKEA39XA', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000020000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "rating": null, "requestId": "01MCC5S838Y40ZMX5TPKEA39XA"}');
INSERT INTO inbox VALUES ('01MCC5SFAJ2F67EBYSQ4Z37DWR', 'telegram:chat:3009', '3009', 1800000027.9864998, 1800000027.9864998, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "3009", "chatKey": "telegram:chat:3009", "chatType": "direct", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000027985, "target": {"chat_id": "3009", "press": "9000"}, "kind": "message", "addressed": "command", "toOthers": false, "text": "", "command": {"name": "approve", "args": "01MCC5SA7BVZ38J8NBAXMSH8JJ once"}, "messageId": null, "userName": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "rating": null, "requestId": "01MCC5SFAJ2F67EBYSQ4Z37DWR"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5S838Y40ZMX5TPKEA39XA', 1800000020.5846355);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5SFAJ2F67EBYSQ4Z37DWR', 1800000027.9864998);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5S838Y40ZMX5TPKEA39XA', 1800000020.5846355);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5SFAJ2F67EBYSQ4Z37DWR', 1800000027.9864998);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000020000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5S838Y40ZMX5TPKEA39XA","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5S93R7CA0VW81K6F98AFA.jsonl', CAST('{"v":1,"uuid":"01MCC5S945VK087DKAJK9CSRGZ","parentUuid":null,"type":"turn_start","ts":1800000021637,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5S93R7CA0VW81K6F98AFA","requestId":"01MCC5S838Y40ZMX5TPKEA39XA","data":{"frame":{"model":"claude-sonnet-5-5","digest":"000ad38cba091cb8","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5S945VK087DKAJK9CSRH0","parentUuid":null,"type":"user","ts":1800000021637,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5S93R7CA0VW81K6F98AFA","requestId":"01MCC5S838Y40ZMX5TPKEA39XA","message":{"role":"user","content":[{"type":"text","text":"<turn_context-222ace17>{\"requestId\": \"01MCC5S838Y40ZMX5TPKEA39XA\", \"time\": \"2027-01-15T08:00:21Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-222ace17>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5S93R7CA0VW81K6F98AFA.jsonl', CAST('{"v":1,"uuid":"01MCC5S98HF49CY45MAHZQ5PAY","parentUuid":"01MCC5S945VK087DKAJK9CSRH0","type":"assistant","ts":1800000021777,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5S93R7CA0VW81K6F98AFA","requestId":"01MCC5S838Y40ZMX5TPKEA39XA","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2395},"costUsd":0.0061575}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000019.5013297);
INSERT INTO outbox VALUES ('01MCC5SA8V8HJ6GEYF2K93P8XK', '01MCC5SA7BVZ38J8NBAXMSH8JJ', 'telegram:chat:3009', '{"chat_id": "3009"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve MSH8JJ or deny MSH8JJ (as commands), within 30 minutes. approve MSH8JJ chat allows exactly this for this chat; always is for operators.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000022.8117101, 1800000022.8312445, '01MCC5SA7BVZ38J8NBAXMSH8JJ', '["once", "chat", "always", "deny"]');
INSERT INTO outbox VALUES ('01MCC5SABS4BSA5RMRYYMB8N5S', '01MCC5SA7BVZ38J8NBAXMSH8JJ', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'This waits for an approval. It is for 3001 (`Person 3001`): a rule of this installation wants it approved. Rule: ask skills_list.

```
skills_list
```

An operator can answer with approve MSH8JJ or deny MSH8JJ (as commands), within 30 minutes. approve MSH8JJ chat allows exactly this for this chat; always is for operators.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000022.9056664, 1800000027.4507685, '01MCC5SA7BVZ38J8NBAXMSH8JJ', '[]');
INSERT INTO steps VALUES ('01MCC5S838Y40ZMX5TPKEA39XA', '01MCC5S945VK087DKAJK9CSRH1', 'model', 'claude-sonnet-5-5', 1800000021.6376264, 1800000022.7563622, '{"uuid": "01MCC5S98HF49CY45MAHZQ5PAY", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2395}, "costUsd": 0.0061575, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5S838Y40ZMX5TPKEA39XA', 'telegram:chat:-3200', 'suspended', 1800000020.6611953, NULL);
