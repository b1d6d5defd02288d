INSERT INTO approvals VALUES ('01MCC5RZ2H3Q7D90WW811D0XDY', '01MCC5RRBR1K78B5MMR1YT4YJY', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', 'call', '{"request_id": "01MCC5RRBR1K78B5MMR1YT4YJY", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "task": ""}', 'approved', 1800000011.345162, 'telegram:3009', 'Person 3009', 'once', 1800000011.4991438);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000004.4722683, NULL);
INSERT INTO chats VALUES ('telegram:chat:3009', 1800000011.4865978, NULL);
INSERT INTO inbox VALUES ('01MCC5RRBR1K78B5MMR1YT4YJY', 'telegram:chat:-3200', '3001', 1800000004.4722683, 1800000004.4954214, 'in_turn', '01MCC5RRBR1K78B5MMR1YT4YJY', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000004000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RRBR1K78B5MMR1YT4YJY"}');
INSERT INTO inbox VALUES ('01MCC5RZ6Y9K7VGQVBGHY680T0', 'telegram:chat:3009', '3009', 1800000011.4865978, 1800000011.4865978, 'queued', NULL, NULL, NULL, '2', '{"channel": "telegram", "chatId": "3009", "chatKey": "telegram:chat:3009", "chatType": "direct", "userId": "3009", "keys": ["telegram:4242:update:700000002", "telegram:4242:message:3009:2"], "ts": 1800000011000, "target": {"chat_id": "3009"}, "kind": "message", "addressed": "direct", "toOthers": false, "text": "/approve 1D0XDY", "command": {"name": "approve", "args": "1D0XDY"}, "messageId": "2", "userName": "Person 3009", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RZ6Y9K7VGQVBGHY680T0"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RRBR1K78B5MMR1YT4YJY', 1800000004.4722683);
INSERT INTO keys VALUES ('telegram:telegram:4242:message:3009:2', '01MCC5RZ6Y9K7VGQVBGHY680T0', 1800000011.4865978);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RRBR1K78B5MMR1YT4YJY', 1800000004.4722683);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000002', '01MCC5RZ6Y9K7VGQVBGHY680T0', 1800000011.4865978);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000004000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RRBR1K78B5MMR1YT4YJY","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RRECF745254WANPSTE6E.jsonl', CAST('{"v":1,"uuid":"01MCC5RRF3H9A7KN33217R3H7B","parentUuid":null,"type":"turn_start","ts":1800000004579,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RRECF745254WANPSTE6E","requestId":"01MCC5RRBR1K78B5MMR1YT4YJY","data":{"frame":{"model":"claude-sonnet-5-5","digest":"702e1c983a0d0f52","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RRF3PS7KGGK33YETA5M8","parentUuid":null,"type":"user","ts":1800000004579,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RRECF745254WANPSTE6E","requestId":"01MCC5RRBR1K78B5MMR1YT4YJY","message":{"role":"user","content":[{"type":"text","text":"<turn_context-5f6fba9d>{\"requestId\": \"01MCC5RRBR1K78B5MMR1YT4YJY\", \"time\": \"2027-01-15T08:00:04Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-5f6fba9d>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RRECF745254WANPSTE6E.jsonl', CAST('{"v":1,"uuid":"01MCC5RRJ3J36XJP20SE7M98BP","parentUuid":"01MCC5RRF3PS7KGGK33YETA5M8","type":"assistant","ts":1800000004675,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RRECF745254WANPSTE6E","requestId":"01MCC5RRBR1K78B5MMR1YT4YJY","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2488},"costUsd":0.00639}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000002.1477964);
INSERT INTO outbox VALUES ('01MCC5RZ3BYT5BT77BF49P9QPK', '01MCC5RZ2H3Q7D90WW811D0XDY', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.
Operators can decide within 30 minutes.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000011.372097, 1800000011.386378, '01MCC5RZ2H3Q7D90WW811D0XDY', '["once", "chat", "always", "deny"]', 'en', NULL, 'UTC', 0, NULL, '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule says so. Rule: ask skills_list.

Asked in the group -3200.');
INSERT INTO outbox VALUES ('01MCC5RZ54FSJF0C0MA5DR338T', '01MCC5RZ2H3Q7D90WW811D0XDY', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'For this I need a yes from an operator.
I''ve asked, and wait for up to 30 minutes.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000011.4286668, 1800000011.449888, '01MCC5RZ2H3Q7D90WW811D0XDY', '[]', 'en', NULL, 'UTC', 0, NULL, 'For this I need a yes from an operator.');
INSERT INTO steps VALUES ('01MCC5RRBR1K78B5MMR1YT4YJY', '01MCC5RRF4SYC0Y54V9WCBVPHB', 'model', 'claude-sonnet-5-5', 1800000004.5808146, 1800000008.2314537, '{"uuid": "01MCC5RRJ3J36XJP20SE7M98BP", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2488}, "costUsd": 0.00639, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RRBR1K78B5MMR1YT4YJY', 'telegram:chat:-3200', 'suspended', 1800000004.4954214, NULL);
