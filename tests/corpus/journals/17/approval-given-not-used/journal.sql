INSERT INTO approvals VALUES ('01MCC5RNGQPN7132CK6C54N8NM', '01MCC5RNFTPY48YQ1X3K1DDEY1', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', 'call', '{"request_id": "01MCC5RNFTPY48YQ1X3K1DDEY1", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "task": ""}', 'approved', 1800000001.5600247, 'telegram:3009', 'Person 3009', 'once', 1800000001.9400833, '01MCC5RNK84WW4V65SPDS114YZ');
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000001.5303242, NULL);
INSERT INTO chats VALUES ('telegram:chat:3009', 1800000001.6410728, NULL);
INSERT INTO inbox VALUES ('01MCC5RNFTPY48YQ1X3K1DDEY1', 'telegram:chat:-3200', '3001', 1800000001.5303242, 1800000001.5317976, 'in_turn', '01MCC5RNFTPY48YQ1X3K1DDEY1', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000001000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RNFTPY48YQ1X3K1DDEY1"}', NULL);
INSERT INTO inbox VALUES ('01MCC5RNK84WW4V65SPDS114YZ', 'telegram:chat:3009', '3009', 1800000001.6410728, 1800000001.6410728, 'queued', NULL, NULL, NULL, NULL, '{"channel": "telegram", "chatId": "3009", "chatKey": "telegram:chat:3009", "chatType": "direct", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:press:9000"], "ts": 1800000001640, "target": {"chat_id": "3009", "press": "9000"}, "kind": "message", "addressed": "command", "toOthers": false, "text": "", "command": {"name": "approve", "args": "01MCC5RNGQPN7132CK6C54N8NM once"}, "messageId": null, "userName": "Person 3009", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RNK84WW4V65SPDS114YZ"}', NULL);
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RNFTPY48YQ1X3K1DDEY1', 1800000001.5303242);
INSERT INTO keys VALUES ('telegram:telegram:4242:press:9000', '01MCC5RNK84WW4V65SPDS114YZ', 1800000001.6410728);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RNFTPY48YQ1X3K1DDEY1', 1800000001.5303242);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RNK84WW4V65SPDS114YZ', 1800000001.6410728);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000001000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RNFTPY48YQ1X3K1DDEY1","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RNFYZVAWQM0NS529HYYK.jsonl', CAST('{"v":1,"uuid":"01MCC5RNG0K974PJ4JKPNN61B5","parentUuid":null,"type":"turn_start","ts":1800000001536,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNFYZVAWQM0NS529HYYK","requestId":"01MCC5RNFTPY48YQ1X3K1DDEY1","data":{"frame":{"model":"claude-sonnet-5-5","digest":"567d26c28e111536","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RNG1ZCC29RXFX4HK5YHW","parentUuid":null,"type":"user","ts":1800000001537,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNFYZVAWQM0NS529HYYK","requestId":"01MCC5RNFTPY48YQ1X3K1DDEY1","message":{"role":"user","content":[{"type":"text","text":"<turn_context-b9546dc7>{\"requestId\": \"01MCC5RNFTPY48YQ1X3K1DDEY1\", \"time\": \"2027-01-15T08:00:01Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-b9546dc7>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RNFYZVAWQM0NS529HYYK.jsonl', CAST('{"v":1,"uuid":"01MCC5RNGAGHHP3QS6RZHDSRF5","parentUuid":"01MCC5RNG1ZCC29RXFX4HK5YHW","type":"assistant","ts":1800000001546,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RNFYZVAWQM0NS529HYYK","requestId":"01MCC5RNFTPY48YQ1X3K1DDEY1","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2491},"costUsd":0.0063975}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.8995848);
INSERT INTO outbox VALUES ('01MCC5RNH32ARE1BX5JQ0BNSAG', '01MCC5RNGQPN7132CK6C54N8NM', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.
Operators can decide within 30 minutes.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.5716608, 1800000001.5777915, '01MCC5RNGQPN7132CK6C54N8NM', '["once", "chat", "always", "deny"]', 'en', NULL, 'UTC', 0, NULL, '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.

Asked in the group -3200.', 0);
INSERT INTO outbox VALUES ('01MCC5RNHJD4X2YD1709AY2PA6', '01MCC5RNGQPN7132CK6C54N8NM', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'For this I need a yes from an operator.
I''ve asked, and wait for up to 30 minutes.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.586793, 1800000001.6213753, '01MCC5RNGQPN7132CK6C54N8NM', '[]', 'en', NULL, 'UTC', 0, NULL, 'For this I need a yes from an operator.', 0);
INSERT INTO steps VALUES ('01MCC5RNFTPY48YQ1X3K1DDEY1', '01MCC5RNG1ZCC29RXFX4HK5YHX', 'model', 'claude-sonnet-5-5', 1800000001.5376062, 1800000001.559439, '{"uuid": "01MCC5RNGAGHHP3QS6RZHDSRF5", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2491}, "costUsd": 0.0063975, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RNFTPY48YQ1X3K1DDEY1', 'telegram:chat:-3200', 'suspended', 1800000001.5317976, NULL);
