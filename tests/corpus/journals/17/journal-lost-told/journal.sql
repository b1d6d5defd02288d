INSERT INTO lost VALUES (1, 'gone', 1800000000.4698858);
INSERT INTO once VALUES ('report:journal lost', 1800000000.5363088, 1800003600.5363088);
INSERT INTO outbox VALUES ('01MCC5RMGRJDTE7J3VDD1NZHC2', '01MCC5RM8WGM2DKCDMBW1PQVM3', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.5369034, 1800000000.5429537, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL, 0);
