INSERT INTO lost VALUES (1, 'gone', 1800000002.082165);
INSERT INTO once VALUES ('report:journal lost', 1800000002.4719677, 1800003602.4719677);
INSERT INTO outbox VALUES ('01MCC5RPD8PZ5W87XRZWB3SXWG', '01MCC5RNF93R1F9JDC64X41SY3', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I cannot tell whether I have answered your last message. If it has no answer, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000002.4725404, 1800000002.4782732);
