INSERT INTO lost VALUES (1, 'gone', 1800000000.7728171);
INSERT INTO once VALUES ('report:journal lost', 1800000000.862099, 1800003600.862099);
INSERT INTO outbox VALUES ('01MCC5RMTYWCQ2CAJFENPCA40N', '01MCC5RMJS2HNATM75D7KFK1BZ', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.862367, 1800000000.862831);
