INSERT INTO lost VALUES (1, 'gone', 1800000001.8409438);
INSERT INTO once VALUES ('report:journal lost', 1800000001.983818, 1800003601.983818);
INSERT INTO outbox VALUES ('01MCC5RNXZZ7PJGTYKHV53D842', '01MCC5RMVADJR69W1NE8ZN1ZBQ', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.984017, 1800000002.0478823, NULL, NULL);
