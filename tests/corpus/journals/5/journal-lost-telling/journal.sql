INSERT INTO lost VALUES (1, 'gone', 1800000000.3541102);
INSERT INTO once VALUES ('report:journal lost', 1800000000.4350433, 1800003600.4350433);
INSERT INTO outbox VALUES ('01MCC5RMDKM2HD8ZM7N4A34ZFQ', '01MCC5RM6RZSGVA6YDERDP1MWT', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sending', NULL, NULL, 1800000000.4352589, 1800000000.4354196, NULL, NULL, 0, 0);
