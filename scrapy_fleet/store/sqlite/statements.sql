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
INSERT OR IGNORE INTO seen SELECT value FROM json_each(:keys) ORDER BY value;

-- name: new_slots
INSERT OR IGNORE INTO slot (name, concurrency, delay, jitter, pace, boost)
SELECT i.slot, coalesce(r.concurrency, :concurrency), coalesce(r.delay, :delay), coalesce(r.jitter, :jitter),
       coalesce(r.pace, :pace), coalesce(r.boost, 0)
FROM incoming i LEFT JOIN rule r ON r.name = i.slot
GROUP BY i.slot ORDER BY min(i.pos);

-- name: noticed_slots
INSERT OR IGNORE INTO slot (name, concurrency, delay, jitter, pace, boost)
SELECT n.value, coalesce(r.concurrency, :concurrency), coalesce(r.delay, :delay), coalesce(r.jitter, :jitter),
       coalesce(r.pace, :pace), coalesce(r.boost, 0)
FROM json_each(:names) n LEFT JOIN rule r ON r.name = n.value
ORDER BY n.key;

-- name: slot_ids
SELECT json_group_array(json_array(n.value, s.id)) FROM json_each(:names) n JOIN slot s ON s.name = n.value;

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
WITH held AS (SELECT token, slot, busy, attempts, id, alone, at FROM entry
              WHERE state = 1 AND worker = :worker AND token IN (SELECT value FROM json_each(:tokens)))
SELECT (SELECT json_group_array(json_array(token, slot, busy, attempts, id, alone, at)) FROM held),
       (SELECT json_group_array(json_array(id, latency, manners IS NOT NULL, next_at, newest, leeway,
               CASE WHEN lost IS NULL THEN coalesce(json_extract(manners, '$[2]'), 0) END)) FROM slot
        WHERE id IN (SELECT slot FROM held));

-- name: held_all
SELECT json_group_array(json_array(token, slot, busy, attempts, id, alone)) FROM entry
WHERE state = 1 AND worker = :worker;

-- name: busy
UPDATE entry SET busy = b.busy
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS busy FROM json_each(:busy)) b
WHERE entry.id = b.id;

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
    newest = coalesce(d.newest, slot.newest), leeway = coalesce(d.leeway, slot.leeway),
    due_at = coalesce(d.due_at, slot.due_at),
    served = coalesce(d.served, slot.served),
    top = (SELECT rank FROM entry WHERE slot = d.id AND state = 0 ORDER BY rank, ord LIMIT 1)
          - 2 * slot.boost,
    phase = CASE WHEN slot.queued + d.queued = 0 OR slot.active + d.active >= slot.concurrency THEN 0
                 WHEN coalesce(d.due_at, slot.due_at) - (coalesce(d.leeway, slot.leeway) = 0) <= :now THEN 1
                 ELSE 2 END
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS queued,
             json_extract(value, '$[2]') AS suspects, json_extract(value, '$[3]') AS leased,
             json_extract(value, '$[4]') AS active, json_extract(value, '$[5]') AS done,
             json_extract(value, '$[6]') AS latency, json_extract(value, '$[7]') AS next_at,
             json_extract(value, '$[8]') AS served, json_extract(value, '$[9]') AS newest,
             json_extract(value, '$[10]') AS leeway, json_extract(value, '$[11]') AS due_at
      FROM json_each(:deltas)) d
WHERE slot.id = d.id;

-- name: wake
UPDATE slot SET phase = 1 WHERE phase = 2 AND opens_at <= :now;

-- name: next_wake
SELECT min(opens_at) FROM slot WHERE phase = 2 AND opens_at > :now;

-- name: next_suspect_wake
SELECT min(opens_at) FROM slot WHERE suspects > 0 AND active < concurrency AND opens_at > :now;

-- name: ready
SELECT json_group_array(json_array(id, served, active, concurrency, delay, jitter, pace, due_at, boost,
                                   NOT probed AND suspects = 0 AND lost IS NULL))
FROM (SELECT * FROM slot WHERE phase = 1 ORDER BY top, served, id LIMIT :want);

-- name: crowd
-- Workers, and whether a slot has no delay though others have.
SELECT (SELECT count(*) FROM worker), EXISTS (SELECT 1 FROM rule WHERE delay = 0 AND name <> :tasks);

-- name: mine
SELECT json_group_array(json_array(s.id, s.served, s.active, s.concurrency, s.delay, s.jitter, s.pace,
                                   s.due_at, s.boost, NOT s.probed AND s.suspects = 0 AND s.lost IS NULL,
                                   m.running, m.spares))
FROM (SELECT slot, sum(busy = 1) AS running, sum(busy = 2) AS spares
      FROM entry WHERE state = 1 AND worker = :worker GROUP BY slot) m
JOIN slot s ON s.id = m.slot WHERE m.running + m.spares > 0 AND s.queued > 0;

-- name: halted
SELECT json_group_array(name)
FROM (SELECT name FROM slot
      WHERE halted > :told
        AND id IN (SELECT slot FROM entry WHERE state = 1 AND worker = :worker AND token < :first)
      ORDER BY name);

-- name: candidates
SELECT json_group_array(json_array(e.slot, e.rank, e.ord, e.id))
FROM json_each(:slots) s
JOIN entry e ON e.id IN (
    SELECT id FROM entry WHERE state = 0 AND slot = s.value ORDER BY rank, ord LIMIT :depth);

-- name: suspect
SELECT e.id, e.slot, e.at, s.delay, s.jitter, s.pace, s.due_at FROM entry e JOIN slot s ON s.id = e.slot
WHERE e.state = 3 AND s.active < s.concurrency AND s.opens_at <= :now ORDER BY e.at, e.id LIMIT 1;

-- name: lease
UPDATE entry SET state = 1, worker = :worker, token = p.token, at = p.at, alone = :alone,
                 busy = 1 + (p.token >= :spares)
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS token,
             json_extract(value, '$[2]') AS at FROM json_each(:picks)) p
WHERE entry.id = p.id;

-- name: leases
SELECT (SELECT json_group_array(json_array(token, slot, rank, attempts, at, alone, busy, hex(payload)))
        FROM (SELECT * FROM entry WHERE state = 1 AND worker = :worker AND token BETWEEN :first AND :last
              ORDER BY token)),
       (SELECT json_group_array(json_array(id, name, pace, probed, lost)) FROM slot
        WHERE id IN (SELECT slot FROM entry
                     WHERE state = 1 AND worker = :worker AND token BETWEEN :first AND :last));

-- name: count
UPDATE crawl SET
    accepted = accepted + :accepted, waiting = waiting + :waiting, leased = leased + :leased,
    done = done + :done, dead = dead + :dead, suspects = suspects + :suspects, seen = seen + :seen,
    served = served + :served, halts = halts + :halts,
    seeded = :seeded, seeder = :seeder, finished = :finished, clock = :now;

-- name: worker
UPDATE worker SET deadline = :now + ttl, seq = :seq, known = :known, alone = :alone,
                  earlier = told, told = :told
WHERE num = :num;

-- name: stats
INSERT INTO stat SELECT key, value FROM json_each(:stats) WHERE true
ON CONFLICT (name) DO UPDATE SET value = value + excluded.value;

-- name: rules
INSERT INTO rule
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]')
FROM json_each(:rules);

-- name: apply_rules
UPDATE slot SET
    concurrency = coalesce((SELECT concurrency FROM rule WHERE rule.name = slot.name), :concurrency),
    delay = coalesce((SELECT delay FROM rule WHERE rule.name = slot.name), :delay),
    jitter = coalesce((SELECT jitter FROM rule WHERE rule.name = slot.name), :jitter),
    pace = coalesce((SELECT pace FROM rule WHERE rule.name = slot.name), :pace);

-- name: mannered
SELECT json_group_array(id) FROM slot WHERE manners IS NOT NULL;

-- name: manners
SELECT json_group_array(json_array(s.id, s.name, s.next_at, json(s.manners), json(o.value)))
FROM json_each(:slots) j JOIN slot s ON s.id = j.value LEFT JOIN override o ON o.name = s.name;

-- name: treat
UPDATE slot SET concurrency = t.concurrency, delay = t.delay, jitter = t.jitter, pace = t.pace,
                boost = t.boost, due_at = t.due_at, probed = t.probed, lost = t.lost, manners = t.manners,
                halted = coalesce(t.halted, slot.halted)
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS concurrency,
             json_extract(value, '$[2]') AS delay, json_extract(value, '$[3]') AS jitter,
             json_extract(value, '$[4]') AS pace, json_extract(value, '$[5]') AS boost,
             json_extract(value, '$[6]') AS due_at, json_extract(value, '$[7]') AS probed,
             json_extract(value, '$[8]') AS lost, json_extract(value, '$[9]') AS manners,
             json_extract(value, '$[10]') AS halted
      FROM json_each(:treats)) t
WHERE slot.id = t.id;

-- name: overrides
SELECT json_group_object(name, json(value)) FROM override;

-- name: apply_phase
UPDATE slot SET phase = CASE WHEN queued = 0 OR active >= concurrency THEN 0
                             WHEN opens_at <= :now THEN 1 ELSE 2 END;

-- name: new_run
UPDATE crawl SET run = run + 1, seeded = 0, seeder = NULL, finished = 0, accepted = 0, waiting = 0,
    leased = 0, done = 0, dead = 0, suspects = 0, served = 0;

-- name: waiting_in
SELECT coalesce(sum(queued + suspects), 0) FROM slot WHERE name = :slot;

-- name: workers
SELECT w.id, w.host, w.pid, w.joined, w.deadline,
       (SELECT count(*) FROM entry WHERE state = 1 AND worker = w.num) AS leased
FROM worker w ORDER BY w.num;

-- name: busiest
SELECT name FROM slot ORDER BY queued + suspects DESC, name LIMIT :n;

-- name: views
SELECT n.value AS name, s.queued + s.suspects AS waiting, s.leased, s.active, s.done, s.latency, s.next_at,
       s.manners, o.value AS override, s.id
FROM json_each(:names) n LEFT JOIN slot s ON s.name = n.value LEFT JOIN override o ON o.name = n.value
ORDER BY n.key;

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
SELECT json_group_array(json_array(token, slot, busy, attempts, id, alone)) FROM entry
WHERE state = 2 AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)));

-- name: join
INSERT INTO worker (id, host, pid, home, birth, ttl, joined, deadline, told, earlier)
VALUES (:id, :host, :pid, :home, :birth, :ttl, :now, :now + :ttl, :told, :told)
ON CONFLICT (id) DO UPDATE SET ttl = excluded.ttl, deadline = excluded.deadline;

-- name: beat
UPDATE worker SET deadline = :now + ttl WHERE num = :num;

-- name: seen
SELECT json_group_array(k.value IN (SELECT key FROM seen)) FROM json_each(:keys) k;

-- name: read_blocks
-- All bytes in one value: blobs cannot be put together as such, but as text that nobody reads.
SELECT json_group_array(block), CAST(coalesce(group_concat(CAST(bits AS TEXT), ''), '') AS BLOB)
FROM (SELECT block, bits FROM bloom WHERE block IN (SELECT value FROM json_each(:numbers)) ORDER BY block);

-- name: places
SELECT json_group_array(json_array(k.value, r.generation))
FROM json_each(:keys) k CROSS JOIN generation g CROSS JOIN rolling r
WHERE NOT g.dropped AND r.generation = g.number AND r.key = k.value;

-- name: leave_generations
DELETE FROM rolling WHERE (generation, key) IN
    (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:places));

-- name: enter_generation
INSERT INTO rolling SELECT :number, value FROM json_each(:keys) ORDER BY value;

-- name: generations
UPDATE generation AS g SET last = json_extract(r.value, '$[1]'), seen = json_extract(r.value, '$[2]')
FROM json_each(:rows) r WHERE g.number = json_extract(r.value, '$[0]');

-- name: drop_generations
UPDATE generation SET dropped = 1 WHERE number IN (SELECT value FROM json_each(:numbers));

-- name: sweep
DELETE FROM rolling WHERE generation = :number AND key IN
    (SELECT key FROM rolling WHERE generation = :number LIMIT :most);

-- name: exact_page
SELECT json_group_array(key) FROM (SELECT key FROM seen WHERE key >= :first ORDER BY key LIMIT :limit);

-- name: rolling_page
SELECT json_group_array(key)
FROM (SELECT key FROM rolling WHERE generation = :number AND key >= :first ORDER BY key LIMIT :limit);

-- name: thin_generations
UPDATE generation SET seen = seen -
    (SELECT count(*) FROM json_each(:places) p WHERE json_extract(p.value, '$[0]') = generation.number);

-- name: forget_exact
DELETE FROM seen WHERE key IN (SELECT value FROM json_each(:keys));

-- name: exact_to_rolling
INSERT INTO rolling SELECT 1, key FROM seen ORDER BY key;

-- name: rolling_to_exact
INSERT INTO seen SELECT r.key FROM generation g JOIN rolling r ON r.generation = g.number WHERE NOT g.dropped;

-- name: ask_paper
INSERT INTO paper (name, maker, asked) VALUES (:paper, :maker, :now)
ON CONFLICT (name) DO UPDATE SET maker = excluded.maker, asked = excluded.asked;

-- name: write_paper
INSERT INTO paper (name, data, written) VALUES (:paper, :data, :now)
ON CONFLICT (name) DO UPDATE SET data = excluded.data, written = excluded.written, maker = NULL, asked = NULL;

-- name: items
SELECT id, payload FROM item WHERE id > :after ORDER BY id LIMIT :limit;

-- name: make_group
INSERT OR IGNORE INTO item_group (name) VALUES (:group);

-- name: items_again
SELECT i.id, i.payload FROM item_taken t JOIN item i ON i.id = t.item
WHERE t.grp = :group AND (t.consumer = :consumer OR t.at <= :old) ORDER BY t.item LIMIT :limit;

-- name: take_items
INSERT OR REPLACE INTO item_taken (grp, item, consumer, at)
SELECT :group, value, :consumer, :now FROM json_each(:numbers);

-- name: move_group
UPDATE item_group SET last = :last WHERE name = :group;

-- name: ack_items
DELETE FROM item_taken WHERE grp = :group AND item IN (SELECT value FROM json_each(:numbers));

-- name: item_groups
SELECT name, (SELECT count(*) FROM item_taken WHERE grp = name) AS taken,
       -- Their numbers have no gaps.
       coalesce((SELECT max(id) FROM item) + 1 - max(last + 1, (SELECT min(id) FROM item)), 0) AS left
FROM item_group ORDER BY name;

-- name: trim_items
DELETE FROM item WHERE id IN (
    SELECT id FROM item
    WHERE id <= (SELECT min(coalesce((SELECT min(item) - 1 FROM item_taken WHERE grp = name), last))
                 FROM item_group)
    ORDER BY id LIMIT :most);

-- name: dump_waiting
SELECT e.*, :called AS name FROM entry e WHERE e.state = 0 AND e.slot = :slot ORDER BY e.rank, e.ord;

-- name: dump_suspects
SELECT e.*, s.name FROM entry e JOIN slot s ON s.id = e.slot WHERE e.state = 3 ORDER BY e.at, e.id;

-- name: dump_dead
SELECT e.*, s.name FROM entry e JOIN slot s ON s.id = e.slot WHERE e.state = 2 ORDER BY e.id;

-- name: load_slot
INSERT INTO slot (name, concurrency, delay, jitter, pace, boost, done, latency, served, next_at, due_at, manners)
SELECT :called, coalesce(r.concurrency, :concurrency), coalesce(r.delay, :delay), coalesce(r.jitter, :jitter),
       coalesce(r.pace, :pace), coalesce(r.boost, 0), :done, :latency, :served, :next_at, :next_at, :manners
FROM (SELECT 1) LEFT JOIN rule r ON r.name = :called;

-- name: load_entry
INSERT INTO entry (id, slot, rank, ord, payload, attempts, state, at, reason)
VALUES (:id, :slot, :rank, :ord, :payload, :attempts, :state, :at, :reason);

-- name: load_counts
UPDATE slot SET
    queued = (SELECT count(*) FROM entry e WHERE e.slot = slot.id AND e.state = 0),
    suspects = coalesce((SELECT n FROM (SELECT slot AS of, count(*) AS n FROM entry WHERE state = 3 GROUP BY slot)
                         WHERE of = slot.id), 0);

-- name: load_crawl
UPDATE crawl SET run = :run, mode = :mode, seeded = :seeded, seeder = NULL, finished = :finished, done = :done,
    waiting = :waiting, dead = :dead, suspects = :suspects, accepted = :waiting + :dead + :done, served = :served,
    clock = :now;

