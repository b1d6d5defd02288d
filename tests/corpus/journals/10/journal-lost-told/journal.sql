INSERT INTO lost VALUES (1, 'gone', 1800000000.4795237);
INSERT INTO once VALUES ('report:journal lost', 1800000000.5236611, 1800003600.5236611);
INSERT INTO outbox VALUES ('01MCC5RMGBD3PJFS8ES6R3DMW1', '01MCC5RM8521WPB6WJHR0S1N3J', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.523855, 1800000000.5336535, NULL, NULL);
