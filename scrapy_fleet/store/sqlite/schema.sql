-- A crawl in one SQLite file. Times are the store's own seconds (see Database.now).

-- The crawl itself; one row.
CREATE TABLE crawl (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    name      TEXT NOT NULL,
    run       INTEGER NOT NULL DEFAULT 1,      -- how often it was begun anew
    plan      TEXT NOT NULL,                   -- JSON of the newest Plan
    filter    TEXT,                            -- JSON of SeenPlan: how keys are known; NULL: not settled
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
    halts     INTEGER NOT NULL DEFAULT 0,      -- commits and overrides that halted slots
    offset    REAL NOT NULL DEFAULT 0,         -- added to the machine's clock
    clock     REAL NOT NULL                    -- the latest time any worker wrote
);

-- What is throttled together: a host, or a download_slot. How it is treated comes from politeness.py;
-- concurrency, delay, pace, probed and lost are what follows from the plan, its manners and its override.
CREATE TABLE slot (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    concurrency INTEGER NOT NULL,              -- 0: blocked
    delay       REAL NOT NULL,
    jitter      REAL NOT NULL,
    pace        REAL NOT NULL,                 -- the least distance of its requests, jitter or not
    boost       INTEGER NOT NULL,              -- added to the priority of its entries, among slots
    queued      INTEGER NOT NULL DEFAULT 0,    -- ordinary waiting entries
    suspects    INTEGER NOT NULL DEFAULT 0,    -- waiting entries that must run alone
    leased      INTEGER NOT NULL DEFAULT 0,
    active      INTEGER NOT NULL DEFAULT 0,    -- leases whose download is not over
    done        INTEGER NOT NULL DEFAULT 0,
    latency     REAL,                          -- moving average, seconds
    next_at     REAL NOT NULL DEFAULT -1e18,   -- when its delay allows its next request
    due_at      REAL NOT NULL DEFAULT -1e18,   -- when its next request may go out, all counted
    newest      REAL NOT NULL DEFAULT 0,       -- when the lease may run that was paced last
    leeway      REAL NOT NULL DEFAULT 0,       -- how much of next_at is there for that one to begin late
    opens_at    REAL AS (due_at - (leeway = 0)), -- when it may be served: a second (HORIZON) ahead, or not
    served      INTEGER NOT NULL DEFAULT 0,    -- its last turn, as crawl.served counted
    top         INTEGER,                       -- rank of its first ordinary entry, boost counted
    phase       INTEGER NOT NULL DEFAULT 0,    -- 0 nothing to give, 1 may be served, 2 waits for its time
    probed      INTEGER NOT NULL DEFAULT 0,    -- its leases find out whether it answers again
    halted      INTEGER NOT NULL DEFAULT 0,    -- crawl.halts when it was last halted
    lost        TEXT,                          -- why it is given up; NULL if it is not
    manners     TEXT                           -- JSON array of its Manners; NULL if they are as at first
);
CREATE INDEX slot_ready ON slot (top, served, id) WHERE phase = 1;
CREATE INDEX slot_timed ON slot (opens_at) WHERE phase = 2;
CREATE INDEX slot_suspects ON slot (opens_at) WHERE suspects > 0;

-- How slots are treated that have a rule of their own or an override, while their manners are as at first.
CREATE TABLE rule (
    name        TEXT PRIMARY KEY,
    concurrency INTEGER NOT NULL,
    delay       REAL NOT NULL,
    jitter      REAL NOT NULL,
    pace        REAL NOT NULL,
    boost       INTEGER NOT NULL
) WITHOUT ROWID;
-- The slot of tasks, which may be there before any plan is (see model.py: UNPACED).
INSERT INTO rule VALUES ('(tasks)', 1073741824, 0, 0, 0, 0);

-- What people told about slots: JSON of Override.
CREATE TABLE override (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

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
    busy     INTEGER NOT NULL DEFAULT 0,       -- leased: 1 its download is not over, 2 it is spare
    alone    INTEGER NOT NULL DEFAULT 0,       -- leased: its worker holds nothing else
    at       REAL,                             -- leased: when it may run; suspects: waiting since
    reason   TEXT                              -- dead: why
);
CREATE INDEX entry_waiting ON entry (slot, rank, ord) WHERE state = 0;
CREATE UNIQUE INDEX entry_leased ON entry (worker, token) WHERE state = 1;
CREATE INDEX entry_dead ON entry (id) WHERE state = 2;
CREATE INDEX entry_suspect ON entry (at, id) WHERE state = 3;

-- Keys of everything ever queued, 64-bit fingerprints: in one of these, by crawl.filter. Exact:
CREATE TABLE seen (key INTEGER PRIMARY KEY);
-- Bloom, blocks that fit into a page each:
CREATE TABLE bloom (block INTEGER PRIMARY KEY, bits BLOB NOT NULL);
-- Rolling:
CREATE TABLE rolling (
    generation INTEGER NOT NULL,
    key        INTEGER NOT NULL,
    PRIMARY KEY (generation, key)
) WITHOUT ROWID;
CREATE TABLE generation (
    number  INTEGER PRIMARY KEY,
    began   REAL NOT NULL,                     -- by the wall clock
    last    REAL NOT NULL,                     -- when one of its keys was last met
    hot     INTEGER NOT NULL,
    seen    INTEGER NOT NULL,                  -- its keys
    dropped INTEGER NOT NULL                   -- its keys are forgotten, and deleted some at a time
);

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
    told     INTEGER NOT NULL DEFAULT 0,       -- crawl.halts as its last batch was answered
    earlier  INTEGER NOT NULL DEFAULT 0,       -- ... and the batch before it
    alone    INTEGER                           -- token of the lease that must be its only one
);

-- Items, in the order they came; those at the beginning may have been removed (see item_group).
CREATE TABLE item (id INTEGER PRIMARY KEY AUTOINCREMENT, payload BLOB NOT NULL);

-- Who consumes items together, and the last item that was given to any of them.
CREATE TABLE item_group (name TEXT PRIMARY KEY, last INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;

-- Items that consumers have and have not acknowledged.
CREATE TABLE item_taken (
    grp      TEXT NOT NULL,
    item     INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    at       REAL NOT NULL,
    PRIMARY KEY (grp, item)
) WITHOUT ROWID;

CREATE TABLE stat (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

-- Who holds the crawl open, and until when.
CREATE TABLE producer (name TEXT PRIMARY KEY, deadline REAL NOT NULL) WITHOUT ROWID;

-- Documents that workers share.
CREATE TABLE paper (
    name    TEXT PRIMARY KEY,
    data    BLOB,
    written REAL,
    maker   TEXT,                              -- who is to make it
    asked   REAL                               -- since when
);
