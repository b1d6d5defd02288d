INSERT INTO approvals VALUES ('01MCC5RMBY58TF1VP5QN88YSNB', '01MCC5RM8DNS4AXCCECK6HPE4H', 'toolu_000000000000000000000004', 'telegram:chat:-3200', '{approval}', '{"request_id": "01MCC5RM8DNS4AXCCECK6HPE4H", "call_id": "toolu_000000000000000000000004", "chat_key": "telegram:chat:-3200", "tool": "skills_list", "fingerprint": "{approval}", "shown": "skills_list", "why": "rule", "rule": "ask skills_list", "channel": "telegram", "user_id": "3001", "granted": false, "lasting": true, "own": false, "admits": false, "task": ""}', 1800000000.3828013, NULL, NULL, NULL, NULL, NULL);
INSERT INTO chats VALUES ('telegram:chat:-3200', 1800000000.2699232, NULL);
INSERT INTO inbox VALUES ('01MCC5RM8DNS4AXCCECK6HPE4H', 'telegram:chat:-3200', '3001', 1800000000.2699232, 1800000000.274765, 'in_turn', '01MCC5RM8DNS4AXCCECK6HPE4H', NULL, NULL, '1', '{"channel": "telegram", "chatId": "-3200", "chatKey": "telegram:chat:-3200", "chatType": "group", "userId": "3001", "keys": ["telegram:4242:update:700000001", "telegram:4242:message:-3200:1"], "ts": 1800000000000, "target": {"chat_id": "-3200", "reply_to": "1"}, "kind": "message", "addressed": "mention", "toOthers": false, "text": "which skills 技能", "command": null, "messageId": "1", "userName": "Person 3001", "language": null, "zone": null, "fromBot": false, "attachments": [], "quoted": [], "links": [], "answers": null, "items": {}, "changes": null, "due": null, "renews": null, "rating": null, "requestId": "01MCC5RM8DNS4AXCCECK6HPE4H"}');
INSERT INTO keys VALUES ('telegram:telegram:4242:message:-3200:1', '01MCC5RM8DNS4AXCCECK6HPE4H', 1800000000.2699232);
INSERT INTO keys VALUES ('telegram:telegram:4242:update:700000001', '01MCC5RM8DNS4AXCCECK6HPE4H', 1800000000.2699232);
INSERT INTO lines VALUES (1, 'chats/telegram%3Achat%3A-3200', CAST('{"v":1,"ts":1800000000000,"channel":"telegram","chatId":"-3200","chatKey":"telegram:chat:-3200","userId":"3001","messageId":"1","role":"user","text":"which skills 技能","meta":{"requestId":"01MCC5RM8DNS4AXCCECK6HPE4H","chatType":"group","username":"Person 3001"}}
' AS BLOB));
INSERT INTO lines VALUES (2, 'transcripts/telegram%3Achat%3A-3200/01MCC5RM993620VK35SWK4X6HJ.jsonl', CAST('{"v":1,"uuid":"01MCC5RM9QWKKK00681KADF00C","parentUuid":null,"type":"turn_start","ts":1800000000311,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RM993620VK35SWK4X6HJ","requestId":"01MCC5RM8DNS4AXCCECK6HPE4H","data":{"frame":{"model":"claude-sonnet-5-5","digest":"7eb4c459e8d6f598","surroundings":{"projectFolder":"none"}}}}
{"v":1,"uuid":"01MCC5RM9QWKKK00681KADF00D","parentUuid":null,"type":"user","ts":1800000000311,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RM993620VK35SWK4X6HJ","requestId":"01MCC5RM8DNS4AXCCECK6HPE4H","message":{"role":"user","content":[{"type":"text","text":"<turn_context-fd94f131>{\"requestId\": \"01MCC5RM8DNS4AXCCECK6HPE4H\", \"time\": \"2027-01-15T08:00:00Z\", \"userId\": \"3001\", \"userName\": \"Person 3001\"}</turn_context-fd94f131>"},{"type":"text","text":"which skills 技能"}]}}
' AS BLOB));
INSERT INTO lines VALUES (3, 'transcripts/telegram%3Achat%3A-3200/01MCC5RM993620VK35SWK4X6HJ.jsonl', CAST('{"v":1,"uuid":"01MCC5RMB03SEP1JA7WZNFQCC4","parentUuid":"01MCC5RM9QWKKK00681KADF00D","type":"assistant","ts":1800000000352,"chatKey":"telegram:chat:-3200","sessionId":"01MCC5RM993620VK35SWK4X6HJ","requestId":"01MCC5RM8DNS4AXCCECK6HPE4H","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_000000000000000000000004","name":"skills_list","input":{}}],"origin":["3001"]},"data":{"stopReason":"tool_use","usage":{"inputTokens":0,"outputTokens":17,"cacheReadTokens":0,"cacheWriteTokens":2449},"costUsd":0.0062925}}
' AS BLOB));
INSERT INTO lost VALUES (1, 'gone', 1800000000.1614726);
INSERT INTO outbox VALUES ('01MCC5RMCNZEXD9CEXZPJPFCA7', '01MCC5RMBY58TF1VP5QN88YSNB', 'telegram:chat:3009', '{"chat_id": "3009"}', '`Person 3001` (3001) wants me to run this. May I?

```
skills_list
```

Asked because a rule wants it. Rule: ask skills_list.
Operators can decide within 30 minutes.

Asked in the group -3200.', 'notice', 'sent', '1', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.4059649, 1800000000.423282, '01MCC5RMBY58TF1VP5QN88YSNB', '["once", "chat", "always", "deny"]', 'en', NULL, 'UTC', 0);
INSERT INTO outbox VALUES ('01MCC5RMDBN57V0E6D433QJTVH', '01MCC5RMBY58TF1VP5QN88YSNB', 'telegram:chat:-3200', '{"chat_id": "-3200", "reply_to": "1"}', 'For this I need a yes from an operator.
I''ve asked, and wait for up to 30 minutes.', 'notice', 'sent', '2', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.4278202, 1800000000.439328, '01MCC5RMBY58TF1VP5QN88YSNB', '[]', 'en', NULL, 'UTC', 0);
INSERT INTO steps VALUES ('01MCC5RM8DNS4AXCCECK6HPE4H', '01MCC5RM9RDQW1NGFZRZEN73K8', 'model', 'claude-sonnet-5-5', 1800000000.3125496, 1800000000.3769338, '{"uuid": "01MCC5RMB03SEP1JA7WZNFQCC4", "stopReason": "tool_use", "usage": {"inputTokens": 0, "outputTokens": 17, "cacheReadTokens": 0, "cacheWriteTokens": 2449}, "costUsd": 0.0062925, "providerRequestId": "req_000000000000000000000003"}', NULL);
INSERT INTO turns VALUES ('01MCC5RM8DNS4AXCCECK6HPE4H', 'telegram:chat:-3200', 'suspended', 1800000000.274765, NULL);
