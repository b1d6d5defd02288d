INSERT INTO lost VALUES (1, 'gone', 1800000002.5086284);
INSERT INTO once VALUES ('report:journal lost', 1800000002.5868247, 1800003602.5868247);
INSERT INTO outbox VALUES ('01MCC5RPGTJ626GW4H9W2690JE', '01MCC5RP96WPD91K2JK7V9JZ2V', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.5871532, 1800000002.589557, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL);
