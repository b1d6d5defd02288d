INSERT INTO lost VALUES (1, 'gone', 1800000001.0262969);
INSERT INTO once VALUES ('report:journal lost', 1800000001.110866, 1800003601.110866);
INSERT INTO outbox VALUES ('01MCC5RN2PK0SAN8M9M8K74VMT', '01MCC5RMNRKRWZ30TB40EV61DH', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.1139832, 1800000001.1508336);
