INSERT INTO lost VALUES (1, 'gone', 1800000000.1097212);
INSERT INTO once VALUES ('report:journal lost', 1800000000.1210349, 1800003600.1210349);
INSERT INTO outbox VALUES ('01MCC5RM3SKDN63T4S46SVERGM', '01MCC5RM24P66GDM840FV0DXXZ', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000000.12118, 1800000000.12126);
