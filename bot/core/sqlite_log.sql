CREATE TABLE IF NOT EXISTS events (
  n INTEGER PRIMARY KEY, chat TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL UNIQUE, turn TEXT, person TEXT,
  kind TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL, UNIQUE (chat, seq));
CREATE INDEX IF NOT EXISTS received ON events (chat, seq, at) WHERE kind = 'received';
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, chat TEXT NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS chats (chat TEXT PRIMARY KEY, base INTEGER NOT NULL, open INTEGER) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_chats ON chats (chat) WHERE open IS NOT NULL;
CREATE TABLE IF NOT EXISTS usage (
  hour INTEGER, chat TEXT, person TEXT, model TEXT, purpose TEXT, turns INTEGER NOT NULL, failed INTEGER NOT NULL,
  answered INTEGER NOT NULL, calls INTEGER NOT NULL, unpriced INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
  cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, cost REAL NOT NULL,
  PRIMARY KEY (chat, hour, person, model, purpose)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts (
  hour INTEGER, chat TEXT, what TEXT, name TEXT, count INTEGER NOT NULL, PRIMARY KEY (chat, hour, what, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage_hours (
  hour INTEGER, chat TEXT, model TEXT, purpose TEXT, turns INTEGER NOT NULL, failed INTEGER NOT NULL, calls INTEGER NOT NULL,
  unpriced INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
  cost REAL NOT NULL, PRIMARY KEY (hour, chat, model, purpose)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts_hours (
  hour INTEGER, chat TEXT, what TEXT, name TEXT, count INTEGER NOT NULL, PRIMARY KEY (hour, chat, what, name)) WITHOUT ROWID;
DROP TRIGGER IF EXISTS used;
CREATE TRIGGER IF NOT EXISTS call_used AFTER INSERT ON events WHEN NEW.kind = 'used' BEGIN
  INSERT INTO usage VALUES (
    CAST(NEW.at / 3600 AS INTEGER), NEW.chat, coalesce(NEW.data ->> '$.person', ''), NEW.data ->> '$.model', NEW.data ->> '$.purpose', 0, 0, 0,
    NEW.data ->> '$.error' IS NULL, NEW.data ->> '$.usage' IS NOT NULL AND NEW.data ->> '$.cost_usd' IS NULL,
    coalesce(NEW.data ->> '$.usage.inputTokens', 0), coalesce(NEW.data ->> '$.usage.outputTokens', 0),
    coalesce(NEW.data ->> '$.usage.cacheReadTokens', 0), coalesce(NEW.data ->> '$.usage.cacheWriteTokens', 0),
    coalesce(NEW.data ->> '$.cost_usd', 0))
  ON CONFLICT DO UPDATE SET calls = calls + excluded.calls, unpriced = unpriced + excluded.unpriced, input = input + excluded.input,
    output = output + excluded.output, cache_read = cache_read + excluded.cache_read,
    cache_write = cache_write + excluded.cache_write, cost = cost + excluded.cost;
  INSERT INTO counts SELECT CAST(NEW.at / 3600 AS INTEGER), NEW.chat, 'error', NEW.data ->> '$.error', 1
    WHERE NEW.data ->> '$.error' IS NOT NULL
  ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER IF NOT EXISTS waited AFTER INSERT ON events WHEN NEW.kind = 'waited' BEGIN
  INSERT INTO counts SELECT CAST(NEW.at / 3600 AS INTEGER), NEW.chat, what, name, count
    FROM (SELECT 'wait' AS what, NEW.data ->> '$.rounded' AS name, 1 AS count UNION ALL SELECT 'spent', '', NEW.data ->> '$.ms'
      UNION ALL SELECT 'spent', 'model', coalesce(NEW.data ->> '$.parts.model', 0)) WHERE true
  ON CONFLICT DO UPDATE SET count = count + excluded.count;
END;
CREATE INDEX IF NOT EXISTS waits ON events (json_extract(data, '$.ms'), at) WHERE kind = 'waited';
DROP TRIGGER IF EXISTS turn_counted;
CREATE TRIGGER IF NOT EXISTS turn_ended AFTER INSERT ON events WHEN NEW.kind = 'turn_ended'
AND NEW.data ->> '$.end' <> 'handled' AND EXISTS (SELECT 1 FROM events WHERE id = NEW.turn AND kind = 'received') BEGIN
  INSERT INTO usage SELECT CAST(NEW.at / 3600 AS INTEGER), NEW.chat, substr(NEW.chat, 1, instr(NEW.chat, ':')) || coalesce(person, ''),
    coalesce(NEW.data ->> '$.model', ''), '', 1,
    NEW.data ->> '$.end' IN ('failed', 'withdrawn'), NEW.data ->> '$.end' = 'answered', 0, 0, 0, 0, 0, 0, 0
    FROM events WHERE id = NEW.turn
  ON CONFLICT DO UPDATE SET turns = turns + 1, failed = failed + excluded.failed, answered = answered + excluded.answered;
END;
CREATE TRIGGER IF NOT EXISTS rated AFTER INSERT ON events WHEN NEW.kind = 'rated' BEGIN
  INSERT INTO counts VALUES (CAST(NEW.at / 3600 AS INTEGER), NEW.chat, 'rating', NEW.data ->> '$.rating', 1)
  ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TABLE IF NOT EXISTS facts (kind TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
-- The tables with the suffix `_hours` have the sums of all chats of a channel; their column `chat` contains the channel.
INSERT INTO usage_hours SELECT hour, substr(chat, 1, instr(chat, ':') - 1), model, purpose, sum(turns), sum(failed), sum(calls),
  sum(unpriced), sum(input), sum(output), sum(cache_read), sum(cache_write), sum(cost) FROM usage WHERE NOT EXISTS (SELECT 1 FROM
  usage_hours) GROUP BY hour, substr(chat, 1, instr(chat, ':') - 1), model, purpose;
CREATE TRIGGER IF NOT EXISTS usage_added AFTER INSERT ON usage BEGIN
  INSERT INTO usage_hours SELECT NEW.hour, substr(NEW.chat, 1, instr(NEW.chat, ':') - 1), NEW.model, NEW.purpose, NEW.turns, NEW.failed,
    NEW.calls, NEW.unpriced, NEW.input, NEW.output, NEW.cache_read, NEW.cache_write, NEW.cost WHERE true ON CONFLICT (hour, chat, model,
    purpose) DO UPDATE SET turns = usage_hours.turns + excluded.turns, failed = usage_hours.failed + excluded.failed, calls =
    usage_hours.calls + excluded.calls, unpriced = usage_hours.unpriced + excluded.unpriced, input = usage_hours.input + excluded.input,
    output = usage_hours.output + excluded.output, cache_read = usage_hours.cache_read + excluded.cache_read, cache_write =
    usage_hours.cache_write + excluded.cache_write, cost = usage_hours.cost + excluded.cost;
END;
CREATE TRIGGER IF NOT EXISTS usage_changed AFTER UPDATE ON usage BEGIN
  INSERT INTO usage_hours SELECT NEW.hour, substr(NEW.chat, 1, instr(NEW.chat, ':') - 1), NEW.model, NEW.purpose, NEW.turns - OLD.turns,
    NEW.failed - OLD.failed, NEW.calls - OLD.calls, NEW.unpriced - OLD.unpriced, NEW.input - OLD.input, NEW.output - OLD.output,
    NEW.cache_read - OLD.cache_read, NEW.cache_write - OLD.cache_write, NEW.cost - OLD.cost WHERE true ON CONFLICT (hour, chat, model,
    purpose) DO UPDATE SET turns = usage_hours.turns + excluded.turns, failed = usage_hours.failed + excluded.failed, calls =
    usage_hours.calls + excluded.calls, unpriced = usage_hours.unpriced + excluded.unpriced, input = usage_hours.input + excluded.input,
    output = usage_hours.output + excluded.output, cache_read = usage_hours.cache_read + excluded.cache_read, cache_write =
    usage_hours.cache_write + excluded.cache_write, cost = usage_hours.cost + excluded.cost;
END;
CREATE TRIGGER IF NOT EXISTS usage_deleted AFTER DELETE ON usage BEGIN
  INSERT INTO usage_hours SELECT OLD.hour, substr(OLD.chat, 1, instr(OLD.chat, ':') - 1), OLD.model, OLD.purpose, -OLD.turns, -OLD.failed,
    -OLD.calls, -OLD.unpriced, -OLD.input, -OLD.output, -OLD.cache_read, -OLD.cache_write, -OLD.cost WHERE true ON CONFLICT (hour, chat,
    model, purpose) DO UPDATE SET turns = usage_hours.turns + excluded.turns, failed = usage_hours.failed + excluded.failed, calls =
    usage_hours.calls + excluded.calls, unpriced = usage_hours.unpriced + excluded.unpriced, input = usage_hours.input + excluded.input,
    output = usage_hours.output + excluded.output, cache_read = usage_hours.cache_read + excluded.cache_read, cache_write =
    usage_hours.cache_write + excluded.cache_write, cost = usage_hours.cost + excluded.cost;
END;
INSERT INTO counts_hours SELECT hour, substr(chat, 1, instr(chat, ':') - 1), what, name, sum(count) FROM counts WHERE NOT EXISTS (SELECT 1
  FROM counts_hours) GROUP BY hour, substr(chat, 1, instr(chat, ':') - 1), what, name;
CREATE TRIGGER IF NOT EXISTS counts_added AFTER INSERT ON counts BEGIN
  INSERT INTO counts_hours SELECT NEW.hour, substr(NEW.chat, 1, instr(NEW.chat, ':') - 1), NEW.what, NEW.name, NEW.count WHERE true ON
    CONFLICT (hour, chat, what, name) DO UPDATE SET count = counts_hours.count + excluded.count;
END;
CREATE TRIGGER IF NOT EXISTS counts_changed AFTER UPDATE ON counts BEGIN
  INSERT INTO counts_hours SELECT NEW.hour, substr(NEW.chat, 1, instr(NEW.chat, ':') - 1), NEW.what, NEW.name, NEW.count - OLD.count WHERE
    true ON CONFLICT (hour, chat, what, name) DO UPDATE SET count = counts_hours.count + excluded.count;
END;
CREATE TRIGGER IF NOT EXISTS counts_deleted AFTER DELETE ON counts BEGIN
  INSERT INTO counts_hours SELECT OLD.hour, substr(OLD.chat, 1, instr(OLD.chat, ':') - 1), OLD.what, OLD.name, -OLD.count WHERE true ON
    CONFLICT (hour, chat, what, name) DO UPDATE SET count = counts_hours.count + excluded.count;
END;
