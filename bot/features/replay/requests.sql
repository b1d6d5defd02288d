PRAGMA journal_mode = wal; PRAGMA synchronous = normal; PRAGMA secure_delete = on; PRAGMA journal_size_limit = 16777216;
CREATE TABLE IF NOT EXISTS requests (
  id TEXT PRIMARY KEY, chat TEXT NOT NULL, turn TEXT, task TEXT, purpose TEXT NOT NULL, model TEXT NOT NULL, sha256 TEXT NOT NULL,
  redacted TEXT NOT NULL, body BLOB, answer BLOB) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS of_chat ON requests (chat, id);
CREATE INDEX IF NOT EXISTS of_turn ON requests (turn);
CREATE INDEX IF NOT EXISTS of_task ON requests (task) WHERE task IS NOT NULL;
CREATE TABLE IF NOT EXISTS pieces (
  id INTEGER PRIMARY KEY, chat TEXT NOT NULL, digest BLOB NOT NULL, bytes BLOB NOT NULL, UNIQUE (chat, digest));
CREATE TABLE IF NOT EXISTS removals (chat TEXT NOT NULL, until TEXT NOT NULL, PRIMARY KEY (chat, until)) WITHOUT ROWID;
