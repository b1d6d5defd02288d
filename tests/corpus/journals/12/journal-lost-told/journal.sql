INSERT INTO lost VALUES (1, 'gone', 1800000001.0014617);
INSERT INTO once VALUES ('report:journal lost', 1800000001.2214632, 1800003601.2214632);
INSERT INTO outbox VALUES ('01MCC5RN65ZEDAMQFS3PCR07WJ', '01MCC5RMKBC275JV4PAV00KZB1', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000001.222469, 1800000001.2284222, NULL, NULL, 'en');
