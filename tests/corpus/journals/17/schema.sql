CREATE TABLE "approvals" (
        id TEXT PRIMARY KEY,
        request_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        chat_key TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        subject TEXT NOT NULL CHECK (subject IN ('call', 'task', 'budget', 'person')),
        asked TEXT NOT NULL,
        state TEXT NOT NULL
            CHECK (state IN ('waiting', 'approved', 'denied', 'steered', 'stopped', 'expired', 'nobody')),
        asked_at REAL NOT NULL,
        decided_by TEXT,
        decided_name TEXT,
        scope TEXT CHECK (scope IN ('once', 'chat', 'always')),
        decided_at REAL, decided_request_id TEXT,
        UNIQUE (request_id, call_id, fingerprint)
    );
CREATE TABLE chats (chat_key TEXT PRIMARY KEY, first_at REAL NOT NULL, listening TEXT) WITHOUT ROWID;
CREATE TABLE closed_targets (
            channel TEXT NOT NULL,
            chat_id TEXT NOT NULL,
            reason TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (channel, chat_id)
        ) WITHOUT ROWID;
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
        state TEXT NOT NULL CHECK (state IN ('queued', 'in_turn', 'answered', 'failed', 'stopped', 'withdrawn',
            'merged', 'handled', 'dead')),
        turn_id TEXT,
        merged_into TEXT,
        detail TEXT,
        message_id TEXT,
        payload TEXT NOT NULL
    , amends TEXT);
CREATE TABLE jobs (id TEXT PRIMARY KEY, chat_key TEXT NOT NULL, spec TEXT NOT NULL, served REAL);
CREATE TABLE keys (key TEXT PRIMARY KEY, request_id TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE leases (
            name TEXT PRIMARY KEY,
            holder TEXT,
            number INTEGER NOT NULL,
            taken_at REAL NOT NULL,
            until REAL NOT NULL
        ) WITHOUT ROWID;
CREATE TABLE lines (number INTEGER PRIMARY KEY, file TEXT NOT NULL, lines BLOB NOT NULL);
CREATE TABLE locales (
            channel TEXT NOT NULL,
            user_id TEXT NOT NULL,
            language TEXT,
            language_chosen INTEGER NOT NULL,
            zone TEXT,
            zone_chosen INTEGER NOT NULL,
            PRIMARY KEY (channel, user_id)
        ) WITHOUT ROWID;
CREATE TABLE lost (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        what TEXT NOT NULL CHECK (what IN ('damaged', 'gone')),
        at REAL
    );
CREATE TABLE once (key TEXT PRIMARY KEY, at REAL NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE "outbox" (
        id TEXT PRIMARY KEY,
        request_id TEXT NOT NULL,
        chat_key TEXT NOT NULL,
        target TEXT NOT NULL,
        text TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('ready', 'sending', 'sent', 'failed', 'unknown')),
        message_id TEXT,
        reason TEXT,
        step_id TEXT,
        replaces TEXT,
        repeat_of TEXT,
        not_before REAL,
        attempts INTEGER NOT NULL DEFAULT 0,
        untold INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL,
        changed_at REAL NOT NULL
    , question_id TEXT, choices TEXT, language TEXT, file TEXT, zone TEXT, own_zone INTEGER NOT NULL DEFAULT 0, part_of TEXT, closes_as TEXT, delayed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL NOT NULL);
CREATE TABLE steps (
            request_id TEXT NOT NULL,
            id TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('model', 'tool')),
            name TEXT NOT NULL,
            began_at REAL NOT NULL,
            ended_at REAL,
            result TEXT, parent_id TEXT,
            PRIMARY KEY (request_id, id)
        );
CREATE TABLE turns (
        id TEXT PRIMARY KEY,
        chat_key TEXT NOT NULL,
        state TEXT NOT NULL
            CHECK (state IN ('running', 'suspended', 'stopping', 'done', 'failed', 'stopped', 'withdrawn')),
        begun_at REAL NOT NULL,
        ended_at REAL
    );
CREATE INDEX approvals_asked ON approvals (asked_at);
CREATE INDEX approvals_decided ON approvals (decided_at) WHERE decided_at IS NOT NULL;
CREATE INDEX approvals_decided_by ON approvals (decided_request_id) WHERE decided_request_id IS NOT NULL;
CREATE INDEX approvals_given ON approvals (fingerprint) WHERE state IN ('approved');
CREATE INDEX approvals_open ON approvals (id) WHERE state IN ('waiting');
CREATE INDEX dead_letters_at ON dead_letters (at);
CREATE INDEX inbox_dead ON inbox (changed_at) WHERE state = 'dead';
CREATE INDEX inbox_ended ON inbox (changed_at) WHERE state NOT IN ('queued', 'in_turn', 'dead');
CREATE INDEX inbox_message ON inbox (chat_key, message_id) WHERE message_id IS NOT NULL;
CREATE INDEX inbox_open ON inbox (state) WHERE state IN ('queued', 'in_turn');
CREATE INDEX inbox_turn ON inbox (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX keys_at ON keys (at);
CREATE INDEX once_until ON once (until);
CREATE INDEX outbox_lost ON outbox (changed_at) WHERE state IN ('unknown', 'failed');
CREATE INDEX outbox_newest ON outbox (chat_key) WHERE kind = 'reply';
CREATE INDEX outbox_open ON outbox (state) WHERE state IN ('ready', 'sending');
CREATE INDEX outbox_request ON outbox (request_id);
CREATE INDEX outbox_sent ON outbox (changed_at) WHERE state = 'sent';
CREATE INDEX outbox_shown ON outbox (chat_key, message_id) WHERE state = 'sent' AND kind = 'reply';
CREATE INDEX outbox_untold ON outbox (chat_key) WHERE untold = 1;
CREATE INDEX steps_began ON steps (began_at);
CREATE INDEX turns_begun ON turns (begun_at);
PRAGMA user_version = 17;
