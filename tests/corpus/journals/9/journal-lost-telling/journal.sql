INSERT INTO lost VALUES (1, 'gone', 1800000000.6197379);
INSERT INTO once VALUES ('report:journal lost', 1800000000.6351633, 1800003600.6351633);
INSERT INTO outbox VALUES ('01MCC5RMKVZ8QZC6VVBA29D7KF', '01MCC5RMEB5AKEE32D111XK51K', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.635446, 1800000000.635446, NULL, NULL);
