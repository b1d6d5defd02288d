CREATE TABLE chats (chat_key TEXT PRIMARY KEY, first_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE dead_letters (
            channel TEXT NOT NULL,
            key TEXT NOT NULL,
            raw TEXT NOT NULL,
            reason TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (channel, key)
        );
CREATE TABLE inbox (
            request_id TEXT PRIMARY KEY CHECK (request_id <> ''),
            chat_key TEXT NOT NULL,
            user_id TEXT NOT NULL,
            received_at REAL NOT NULL,
            changed_at REAL NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('received', 'claimed', 'done', 'dead')),
            outcome TEXT,
            payload TEXT NOT NULL
        );
CREATE TABLE keys (key TEXT PRIMARY KEY, request_id TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE once (key TEXT PRIMARY KEY, at REAL NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (
            id TEXT PRIMARY KEY,
            request_id TEXT NOT NULL,
            chat_key TEXT NOT NULL,
            target TEXT NOT NULL,
            text TEXT NOT NULL,
            kind TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('intent', 'sending', 'sent', 'uncertain', 'failed')),
            message_id TEXT,
            detail TEXT,
            created_at REAL NOT NULL,
            changed_at REAL NOT NULL
        );
CREATE INDEX inbox_closed ON inbox (changed_at) WHERE state IN ('done', 'dead');
CREATE INDEX inbox_open ON inbox (state) WHERE state IN ('received', 'claimed');
CREATE INDEX keys_at ON keys (at);
CREATE INDEX once_until ON once (until);
CREATE INDEX outbox_request ON outbox (request_id);
CREATE INDEX outbox_sent ON outbox (changed_at) WHERE state = 'sent';
PRAGMA user_version = 1;
