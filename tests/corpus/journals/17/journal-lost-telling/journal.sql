INSERT INTO lost VALUES (1, 'gone', 1800000000.4971004);
INSERT INTO once VALUES ('report:journal lost', 1800000000.5348082, 1800003600.5348082);
INSERT INTO outbox VALUES ('01MCC5RMGPE0ZKX4D0EVYGBCSB', '01MCC5RM93TEPAA37XXYNJTC97', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.535239, 1800000000.535239, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL, 0);
