INSERT INTO lost VALUES (1, 'gone', 1800000008.1706698);
INSERT INTO once VALUES ('report:journal lost', 1800000009.7967823, 1800003609.7967823);
INSERT INTO outbox VALUES ('01MCC5RXJ4YMA6X1QJZD80SAXX', '01MCC5RS0G0QNATXMXYD686Z27', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sent', '4', NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000009.7995577, 1800000009.849585, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL, 0);
