INSERT INTO lost VALUES (1, 'gone', 1800000000.7562099);
INSERT INTO once VALUES ('report:journal lost', 1800000000.8793983, 1800003600.8793983);
INSERT INTO outbox VALUES ('01MCC5RMVFZ52B3FVZ3B7VBHKZ', '01MCC5RMF3A2FZ3BH507EBHG00', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.8799922, 1800000000.894276, NULL, NULL, 'en', NULL, 'UTC', 0);
