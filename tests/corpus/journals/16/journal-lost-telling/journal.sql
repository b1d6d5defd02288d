INSERT INTO lost VALUES (1, 'gone', 1800000002.5700984);
INSERT INTO once VALUES ('report:journal lost', 1800000002.6223552, 1800003602.6223552);
INSERT INTO outbox VALUES ('01MCC5RPHYRKJ3S3Y07P9VWW4M', '01MCC5RPATVPFHYZQKNKTB4MP4', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.6226845, 1800000002.6226845, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL);
