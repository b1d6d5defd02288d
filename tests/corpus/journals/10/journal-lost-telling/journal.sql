INSERT INTO lost VALUES (1, 'gone', 1800000000.4465163);
INSERT INTO once VALUES ('report:journal lost', 1800000000.4869053, 1800003600.4869053);
INSERT INTO outbox VALUES ('01MCC5RMF6Y84E22MZB3P2T87N', '01MCC5RM8F5S9YK9YEAW0BX56T', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.4871056, 1800000000.4871056, NULL, NULL);
