INSERT INTO lost VALUES (1, 'gone', 1800000000.742792);
INSERT INTO once VALUES ('report:journal lost', 1800000000.7678134, 1800003600.7678134);
INSERT INTO outbox VALUES ('01MCC5RMQZ4Y749BH2DRQM4TV8', '01MCC5RMDNTT3JS1XE7N0JMSQJ', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.7680192, 1800000000.7703595, NULL, NULL);
