INSERT INTO lost VALUES (1, 'gone', 1800000004.4292922);
INSERT INTO once VALUES ('report:journal lost', 1800000004.6706111, 1800003604.6706111);
INSERT INTO outbox VALUES ('01MCC5RRHYC1568MC6FXCN7MS9', '01MCC5RPSZP98M7QAC18BGMZEH', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000004.6878223, 1800000004.7232554, NULL, NULL, 'en', NULL, 'UTC');
