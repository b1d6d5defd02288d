INSERT INTO lost VALUES (1, 'gone', 1800000000.3426077);
INSERT INTO once VALUES ('report:journal lost', 1800000000.3694396, 1800003600.3694396);
INSERT INTO outbox VALUES ('01MCC5RMBHWKHQ5JF2Q6ME6F9Z', '01MCC5RM6AF3H4DD953CY484D6', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sent', '4', NULL, 1800000000.3696992, 1800000000.3741345, NULL, NULL, 0, 0);
