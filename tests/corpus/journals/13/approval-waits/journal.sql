INSERT INTO approvals VALUES ('01MCC5RM9QK65KHT15P2676PET', '01MCC5RM7F87VZW3VVGAXN5QXD', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM7F87VZW3VVGAXN5QXD", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false, "task": ""}', 1800000000.3114088, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.2396264, NULL);
INSERT INTO inbox VALUES ('01MCC5RM7F87VZW3VVGAXN5QXD', 'telegram:chat:-3200', '3001', 1800000000.2396264, 1800000000.2449846, 'in_turn', '01MCC5RM7F87VZW3VVGAXN5QXD', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RM7F87VZW3VVGAXN5QXD"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM7F87VZW3VVGAXN5QXD', 1800000000.2396264);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM7F87VZW3VVGAXN5QXD', 1800000000.2396264);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RM7F87VZW3VVGAXN5QXD","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RM7Z9CVS00M7Y06VZM94.jsonl', CAST('{"v":1,"uuid":"01MCC5RM83VEBCPY4YJZF6WD4M","parentUuid":null,"type":"turn_start","ts":1800000000259,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RM7Z9CVS00M7Y06VZM94","requestId":"01MCC5RM7F87VZW3VVGAXN5QXD","data":{"frame":{"model":"claude-sonnet-5-5","digest":"a97415c9aee008d9","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RM83VEBCPY4YJZF6WD4N","parentUuid":null,"type":"user","ts":1800000000259,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RM7Z9CVS00M7Y06VZM94","requestId":"01MCC5RM7F87VZW3VVGAXN5QXD","message":{"role":"user","content":[{"type":"text","text":"<turn_context-7f22bd40>{\"requestId\": \"01MCC5RM7F87VZW3VVGAXN5QXD\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-7f22bd40>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RM7Z9CVS00M7Y06VZM94.jsonl', CAST('{"v":1,"uuid":"01MCC5RM8PQP6W96JVEWV6PX4Z","parentUuid":"01MCC5RM83VEBCPY4YJZF6WD4N","type":"assistant","ts":1800000000278,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RM7Z9CVS00M7Y06VZM94","requestId":"01MCC5RM7F87VZW3VVGAXN5QXD","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2403},"costUsd":0.0061775}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.1298008);
INSERT INTO outbox VALUES ('01MCC5RMA8332RVHQG27BNM94T', '01MCC5RM9QK65KHT15P2676PET', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule wants it. Rule: ask skills_list.
Operators can decide within 30 minutes. Without buttons: approve 676PET or deny 676PET (as commands); approve 676PET chat allows exactly this for this chat.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.3288796, 1800000000.3555474, '01MCC5RM9QK65KHT15P2676PET', '["once", "chat", "always", "deny"]', 'en', NULL);
INSERT INTO outbox VALUES ('01MCC5RMB6J8VG61T6JPJM23YC', '01MCC5RM9QK65KHT15P2676PET', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule wants it. Rule: ask skills_list.
Operators can decide within 30 minutes. Without buttons: approve 676PET or deny 676PET (as commands); approve 676PET chat allows exactly this for this chat.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.3587816, 1800000000.3637378, '01MCC5RM9QK65KHT15P2676PET', '[]', 'en', NULL);
INSERT INTO steps VALUES ('01MCC5RM7F87VZW3VVGAXN5QXD', '01MCC5RM848NB0WS86GXGN3W2M', 'model', 'claude-sonnet-5-5', 1800000000.2602415, 1800000000.303385, '{"uuid": "01MCC5RM8PQP6W96JVEWV6PX4Z", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2403}, "costUsd": 0.0061775, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM7F87VZW3VVGAXN5QXD', 'telegram:chat:-3200', 'suspended', 1800000000.2449846, NULL);
