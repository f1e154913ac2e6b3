-- A crawl in one SQLite file. Times are the store's own seconds (see Database.now).

-- The crawl itself; one row.
CREATE TABLE crawl (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    name      TEXT NOT NULL,
    run       INTEGER NOT NULL DEFAULT 1,      -- how often it was begun anew
    plan      TEXT NOT NULL,                   -- JSON of the newest Plan
    seeded    INTEGER NOT NULL DEFAULT 0,      -- all seeds are in
    seeder    INTEGER,                         -- worker.num of who runs the seeds
    finished  INTEGER NOT NULL DEFAULT 0,
    mode      TEXT NOT NULL DEFAULT 'run',     -- what the fleet is told: run, pause or stop
    accepted  INTEGER NOT NULL DEFAULT 0,      -- == waiting + leased + done + dead
    waiting   INTEGER NOT NULL DEFAULT 0,      -- suspects included
    leased    INTEGER NOT NULL DEFAULT 0,
    done      INTEGER NOT NULL DEFAULT 0,
    dead      INTEGER NOT NULL DEFAULT 0,
    suspects  INTEGER NOT NULL DEFAULT 0,      -- waiting entries that must run alone
    seen      INTEGER NOT NULL DEFAULT 0,
    served    INTEGER NOT NULL DEFAULT 0,      -- leases handed out, numbers the slots' turns
    offset    REAL NOT NULL DEFAULT 0,         -- added to the machine's clock
    clock     REAL NOT NULL                    -- the latest time any worker wrote
);

-- What is throttled together: a host, or a download_slot.
CREATE TABLE slot (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    concurrency INTEGER NOT NULL,
    delay       REAL NOT NULL,
    jitter      REAL NOT NULL,
    queued      INTEGER NOT NULL DEFAULT 0,    -- ordinary waiting entries
    suspects    INTEGER NOT NULL DEFAULT 0,    -- waiting entries that must run alone
    leased      INTEGER NOT NULL DEFAULT 0,
    active      INTEGER NOT NULL DEFAULT 0,    -- leases whose download is not over
    done        INTEGER NOT NULL DEFAULT 0,
    latency     REAL,                          -- moving average, seconds
    next_at     REAL NOT NULL DEFAULT -1e18,   -- when its next request may go out
    served      INTEGER NOT NULL DEFAULT 0,    -- its last turn, as crawl.served counted
    top         INTEGER,                       -- rank of its first ordinary entry
    phase       INTEGER NOT NULL DEFAULT 0     -- 0 nothing to give, 1 may be served, 2 waits for its time
);
CREATE INDEX slot_ready ON slot (top, served, id) WHERE phase = 1;
CREATE INDEX slot_timed ON slot (next_at) WHERE phase = 2;

-- Rules of slots that have their own.
CREATE TABLE rule (
    name        TEXT PRIMARY KEY,
    concurrency INTEGER NOT NULL,
    delay       REAL NOT NULL,
    jitter      REAL NOT NULL
) WITHOUT ROWID;

-- Requests. Done ones have no row.
CREATE TABLE entry (
    id       INTEGER PRIMARY KEY,              -- order of arrival
    slot     INTEGER NOT NULL,
    rank     INTEGER NOT NULL,                 -- -2 * priority + seed, smallest first
    ord      INTEGER NOT NULL,                 -- id, or -id where the newest comes first
    payload  BLOB NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,       -- workers that died holding it
    state    INTEGER NOT NULL DEFAULT 0,       -- 0 waiting, 1 leased, 2 dead, 3 waiting to run alone
    worker   INTEGER,                          -- leased: worker.num
    token    INTEGER,                          -- leased: the worker's name for the lease
    busy     INTEGER NOT NULL DEFAULT 0,       -- leased: its download is not over
    alone    INTEGER NOT NULL DEFAULT 0,       -- leased: its worker holds nothing else
    at       REAL,                             -- leased: when it may run; suspects: waiting since
    reason   TEXT                              -- dead: why
);
CREATE INDEX entry_waiting ON entry (slot, rank, ord) WHERE state = 0;
CREATE UNIQUE INDEX entry_leased ON entry (worker, token) WHERE state = 1;
CREATE INDEX entry_dead ON entry (id) WHERE state = 2;
CREATE INDEX entry_suspect ON entry (at, id) WHERE state = 3;

-- Keys of everything ever queued: 64-bit fingerprints.
CREATE TABLE seen (key INTEGER PRIMARY KEY);

CREATE TABLE worker (
    num      INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL UNIQUE,
    host     TEXT NOT NULL,
    pid      INTEGER NOT NULL,
    home     TEXT NOT NULL,                    -- boot and pid namespace, empty if unknown
    birth    TEXT NOT NULL,                    -- when the process started, tells reused pids apart
    ttl      REAL NOT NULL,
    joined   REAL NOT NULL,
    deadline REAL NOT NULL,
    seq      INTEGER NOT NULL DEFAULT -1,      -- its last batch
    known    TEXT NOT NULL DEFAULT '[]',       -- what was known in its last batch
    alone    INTEGER                           -- token of the lease that must be its only one
);

CREATE TABLE item (id INTEGER PRIMARY KEY AUTOINCREMENT, payload BLOB NOT NULL);
CREATE TABLE stat (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
