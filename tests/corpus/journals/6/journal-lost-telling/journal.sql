INSERT INTO lost VALUES (1, 'gone', 1800000003.2753873);
INSERT INTO once VALUES ('report:journal lost', 1800000003.4560854, 1800003603.4560854);
INSERT INTO outbox VALUES ('01MCC5RQC0E0HXCZHQ0RP158CX', '01MCC5RNSXRYCS7Q6PGTT30B73', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000003.4571276, 1800000003.4574335);
