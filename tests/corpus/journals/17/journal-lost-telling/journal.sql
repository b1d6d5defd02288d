INSERT INTO lost VALUES (1, 'gone', 1800000004.3339617);
INSERT INTO once VALUES ('report:journal lost', 1800000004.427284, 1800003604.427284);
INSERT INTO outbox VALUES ('01MCC5RRABF5NPXC759BP0PEZS', '01MCC5RPPVRKSZP8HE7TM5K2Z0', 'telegram:chat:3001', '{"chat_id": "3001"}', 'My records were damaged, and I can''t tell whether I answered your last message. If not, please send it again.', 'notice', 'sending', NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 1800000004.427642, 1800000004.427642, NULL, NULL, 'en', NULL, 'UTC', 0, NULL, NULL, 0);
