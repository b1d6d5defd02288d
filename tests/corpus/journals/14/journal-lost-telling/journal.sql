INSERT INTO lost VALUES (1, 'gone', 1800000003.65192);
INSERT INTO once VALUES ('report:journal lost', 1800000003.8069406, 1800003603.8069406);
INSERT INTO outbox VALUES ('01MCC5RQPZZZKC118T7B54S5SQ', '01MCC5RPNKMM7T1F4ZBFCA8YMH', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000003.8128676, 1800000003.8128676, NULL, NULL, 'en', NULL, 'UTC');
