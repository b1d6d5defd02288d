INSERT INTO lost VALUES (1, 'gone', 1800000000.9785972);
INSERT INTO once VALUES ('report:journal lost', 1800000001.1024842, 1800003601.1024842);
INSERT INTO outbox VALUES ('01MCC5RN2EPHWSDQC61XJ29ZZT', '01MCC5RMKFGQ4DV9ZNX5GZDYQ7', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.1031215, 1800000001.1031215, NULL, NULL, 'en', NULL, 'UTC', 0);
