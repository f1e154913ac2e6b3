-- The statements of SqliteStore, by name. Each handles a whole batch in one step, given as JSON:
-- Python's sqlite3 gives up the interpreter lock at every step, and gets it back late
-- while the crawl is busy. For the same reason rows come back as one JSON array.

-- name: incoming
CREATE TEMP TABLE IF NOT EXISTS incoming (
    pos INTEGER PRIMARY KEY, key INTEGER, slot TEXT, rank INTEGER, payload BLOB
);

-- name: known
SELECT json_group_array(pos) FROM incoming i
WHERE EXISTS (SELECT 1 FROM seen WHERE seen.key = i.key);

-- name: forget_known
DELETE FROM incoming WHERE pos IN (SELECT value FROM json_each(:known));

-- name: mark_incoming
INSERT INTO seen SELECT key FROM incoming WHERE key IS NOT NULL ORDER BY key;

-- name: mark_keys
INSERT OR IGNORE INTO seen SELECT value FROM json_each(:keys);

-- name: new_slots
INSERT OR IGNORE INTO slot (name, concurrency, delay, jitter)
SELECT i.slot, coalesce(r.concurrency, :concurrency), coalesce(r.delay, :delay), coalesce(r.jitter, :jitter)
FROM incoming i LEFT JOIN rule r ON r.name = i.slot
GROUP BY i.slot ORDER BY min(i.pos);

-- name: queue_incoming
INSERT INTO entry (id, slot, rank, ord, payload)
SELECT base + pos, s.id, i.rank,
       CASE WHEN :lifo AND NOT i.rank & 1 THEN -(base + pos) ELSE base + pos END, i.payload
FROM (SELECT coalesce(max(id), 0) + 1 AS base FROM entry), incoming i JOIN slot s ON s.name = i.slot;

-- name: incoming_by_slot
SELECT json_group_array(json_array(id, n))
FROM (SELECT s.id AS id, count(*) AS n FROM incoming i JOIN slot s ON s.name = i.slot GROUP BY s.id);

-- name: clear_incoming
DELETE FROM incoming;

-- name: held
SELECT json_group_array(json_array(e.token, e.slot, e.busy, e.attempts, e.id, e.alone, s.latency))
FROM entry e JOIN slot s ON s.id = e.slot
WHERE e.state = 1 AND e.worker = :worker AND e.token IN (SELECT value FROM json_each(:tokens));

-- name: held_all
SELECT json_group_array(json_array(e.token, e.slot, e.busy, e.attempts, e.id, e.alone, s.latency))
FROM entry e JOIN slot s ON s.id = e.slot WHERE e.state = 1 AND e.worker = :worker;

-- name: free
UPDATE entry SET busy = 0 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: settle
DELETE FROM entry WHERE id IN (SELECT value FROM json_each(:ids));

-- name: move
UPDATE entry SET state = m.state, attempts = m.attempts, reason = m.reason, at = :now,
                 worker = NULL, token = NULL, busy = 0, alone = 0
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS state,
             json_extract(value, '$[2]') AS attempts, json_extract(value, '$[3]') AS reason
      FROM json_each(:moves)) m
WHERE entry.id = m.id;

-- name: slots
UPDATE slot SET
    queued = slot.queued + d.queued, suspects = slot.suspects + d.suspects,
    leased = slot.leased + d.leased, active = slot.active + d.active, done = slot.done + d.done,
    latency = coalesce(d.latency, slot.latency), next_at = coalesce(d.next_at, slot.next_at),
    served = coalesce(d.served, slot.served),
    top = (SELECT rank FROM entry WHERE slot = d.id AND state = 0 ORDER BY rank, ord LIMIT 1),
    phase = CASE WHEN slot.queued + d.queued = 0 OR slot.active + d.active >= slot.concurrency THEN 0
                 WHEN coalesce(d.next_at, slot.next_at) <= :due THEN 1 ELSE 2 END
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS queued,
             json_extract(value, '$[2]') AS suspects, json_extract(value, '$[3]') AS leased,
             json_extract(value, '$[4]') AS active, json_extract(value, '$[5]') AS done,
             json_extract(value, '$[6]') AS latency, json_extract(value, '$[7]') AS next_at,
             json_extract(value, '$[8]') AS served
      FROM json_each(:deltas)) d
WHERE slot.id = d.id;

-- name: wake
UPDATE slot SET phase = 1 WHERE phase = 2 AND next_at <= :due;

-- name: next_wake
SELECT min(next_at) FROM slot WHERE phase = 2 AND next_at > :due;

-- name: next_suspect_wake
SELECT min(next_at) FROM slot WHERE suspects > 0 AND active < concurrency AND next_at > :due;

-- name: ready
SELECT json_group_array(json_array(id, served, active, concurrency, delay, jitter, next_at))
FROM (SELECT * FROM slot WHERE phase = 1 ORDER BY top, served, id LIMIT :want);

-- name: mine
SELECT json_group_array(json_array(slot, n))
FROM (SELECT slot, count(*) AS n FROM entry WHERE state = 1 AND worker = :worker AND busy = 1 GROUP BY slot);

-- name: candidates
SELECT json_group_array(json_array(e.slot, e.rank, e.ord, e.id))
FROM json_each(:slots) s
JOIN entry e ON e.id IN (
    SELECT id FROM entry WHERE state = 0 AND slot = s.value ORDER BY rank, ord LIMIT :depth);

-- name: suspect
SELECT e.id, e.slot, e.at, s.delay, s.jitter, s.next_at FROM entry e JOIN slot s ON s.id = e.slot
WHERE e.state = 3 AND s.active < s.concurrency AND s.next_at <= :due ORDER BY e.at, e.id LIMIT 1;

-- name: lease
UPDATE entry SET state = 1, worker = :worker, token = p.token, at = p.at, busy = 1, alone = :alone
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS token,
             json_extract(value, '$[2]') AS at FROM json_each(:picks)) p
WHERE entry.id = p.id;

-- name: leases
SELECT json_group_array(json_array(e.token, s.name, e.rank, e.attempts, e.at, e.alone, hex(e.payload)))
FROM (SELECT * FROM entry WHERE state = 1 AND worker = :worker AND token BETWEEN :first AND :last
      ORDER BY token) e
JOIN slot s ON s.id = e.slot;

-- name: count
UPDATE crawl SET
    accepted = accepted + :accepted, waiting = waiting + :waiting, leased = leased + :leased,
    done = done + :done, dead = dead + :dead, suspects = suspects + :suspects, seen = seen + :seen,
    served = served + :served, seeded = :seeded, seeder = :seeder, finished = :finished, clock = :now;

-- name: worker
UPDATE worker SET deadline = :now + ttl, seq = :seq, known = :known, alone = :alone WHERE num = :num;

-- name: stats
INSERT INTO stat SELECT key, value FROM json_each(:stats) WHERE true
ON CONFLICT (name) DO UPDATE SET value = value + excluded.value;

-- name: rules
INSERT INTO rule SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'),
                        json_extract(value, '$[2]'), json_extract(value, '$[3]')
FROM json_each(:rules);

-- name: apply_rules
UPDATE slot SET
    concurrency = coalesce((SELECT concurrency FROM rule WHERE rule.name = slot.name), :concurrency),
    delay = coalesce((SELECT delay FROM rule WHERE rule.name = slot.name), :delay),
    jitter = coalesce((SELECT jitter FROM rule WHERE rule.name = slot.name), :jitter);

-- name: apply_phase
UPDATE slot SET phase = CASE WHEN queued = 0 OR active >= concurrency THEN 0
                             WHEN next_at <= :due THEN 1 ELSE 2 END;

-- name: new_run
UPDATE crawl SET run = run + 1, seeded = 0, seeder = NULL, finished = 0, accepted = 0, waiting = 0,
    leased = 0, done = 0, dead = 0, suspects = 0, served = 0;

-- name: workers
SELECT w.id, w.host, w.pid, w.joined, w.deadline,
       (SELECT count(*) FROM entry WHERE state = 1 AND worker = w.num) AS leased
FROM worker w ORDER BY w.num;

-- name: busiest
SELECT name, queued + suspects AS waiting, leased, done, delay, concurrency, latency, next_at
FROM slot ORDER BY waiting DESC, name LIMIT :n;

-- name: scan_slot
SELECT e.*, :slot AS name, NULL AS worker_id FROM entry e
WHERE e.state = 0 AND e.slot = (SELECT id FROM slot WHERE name = :slot)
ORDER BY e.rank, e.ord LIMIT :limit OFFSET :after;

-- name: scan_suspects
SELECT e.*, :slot AS name, NULL AS worker_id FROM entry e
WHERE e.state = 3 AND e.slot = (SELECT id FROM slot WHERE name = :slot)
ORDER BY e.at, e.id LIMIT :limit OFFSET :after;

-- name: scan
SELECT e.*, s.name, w.id AS worker_id
FROM entry e JOIN slot s ON s.id = e.slot LEFT JOIN worker w ON w.num = e.worker
WHERE e.state IN (SELECT value FROM json_each(:states)) AND e.id > :after AND (:slot IS NULL OR s.name = :slot)
ORDER BY e.id LIMIT :limit;

-- name: dead
SELECT json_group_array(json_array(token, slot, busy, attempts, id, alone, NULL)) FROM entry
WHERE state = 2 AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)));

-- name: join
INSERT INTO worker (id, host, pid, home, birth, ttl, joined, deadline)
VALUES (:id, :host, :pid, :home, :birth, :ttl, :now, :now + :ttl)
ON CONFLICT (id) DO UPDATE SET ttl = excluded.ttl, deadline = excluded.deadline;

-- name: beat
UPDATE worker SET deadline = :now + ttl WHERE num = :num;
