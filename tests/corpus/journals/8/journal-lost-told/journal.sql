INSERT INTO lost VALUES (1, 'gone', 1800000000.0966837);
INSERT INTO once VALUES ('report:journal lost', 1800000000.107816, 1800003600.107816);
INSERT INTO outbox VALUES ('01MCC5RM3BMQ4XRQDV4AZAPFZW', '01MCC5RM1ZG0WBAKC2PFGQVGYY', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.1079683, 1800000000.109828);
