INSERT INTO lost VALUES (1, 'gone', 1800000002.7102637);
INSERT INTO once VALUES ('report:journal lost', 1800000002.9007556, 1800003602.9007556);
INSERT INTO outbox VALUES ('01MCC5RPTMY8MTAXA1AVXQ85G8', '01MCC5RNNNJ2W0H7KYGBPK4C7Q', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.9009407, 1800000002.9009407, NULL, NULL, 'en');
