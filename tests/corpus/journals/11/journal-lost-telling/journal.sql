INSERT INTO lost VALUES (1, 'gone', 1800000001.6999674);
INSERT INTO once VALUES ('report:journal lost', 1800000001.9175088, 1800003601.9175088);
INSERT INTO outbox VALUES ('01MCC5RNVX1N92XB9PJVH8ZQFM', '01MCC5RMSKFW512H3X7ASNNYT6', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.9178767, 1800000001.9178767, NULL, NULL);
