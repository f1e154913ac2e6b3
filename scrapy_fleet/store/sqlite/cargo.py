"""Taking a crawl out of its file, and putting one in: each in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

import msgspec

from scrapy_fleet.cargo import About, Document, Item, Kept, NotEmpty, Piece, Place, Told, at, from_now
from scrapy_fleet.model import Override
from scrapy_fleet.politeness import Manners
from scrapy_fleet.store.sqlite.changes import DEAD, SUSPECT, WAITING, Changes
from scrapy_fleet.store.sqlite.controlling import any_alive
from scrapy_fleet.store.sqlite.database import Database, decode_plan
from scrapy_fleet.store.sqlite.treating import AS_AT_FIRST, Treating, manners_of, treatment_of, write_rules

_NEVER = -1e18


def dump(db: Database) -> Iterator[Piece]:
    execute = db.connection.execute
    crawl = db.crawl()
    now = db.glance(crawl)
    yield About(
        run=crawl["run"],
        mode=crawl["mode"],
        seeded=bool(crawl["seeded"]),
        finished=bool(crawl["finished"]),
        done=crawl["done"],
        last_id=db.value("SELECT coalesce(max(id), 0) FROM entry"),
        stats={r["name"]: r["value"] for r in execute("SELECT name, value FROM stat")},
        state={r["name"]: r["value"] for r in execute("SELECT name, value FROM state")},
    )
    for r in execute("SELECT name, value FROM override ORDER BY name"):
        yield Told(r["name"], msgspec.json.decode(r["value"], type=Override))
    slots = execute("SELECT * FROM slot ORDER BY served, id").fetchall()
    for r in slots:
        next_in, manners = max(0.0, r["next_at"] - now), from_now(manners_of(r["manners"]), now)
        yield Place(r["name"], r["done"], r["latency"], r["served"] > 0, next_in, manners)
    for slot in slots:
        for r in db.run("dump_waiting", slot=slot["id"], called=slot["name"]):
            yield _piece(r, None)
    for r in db.run("dump_suspects"):
        yield _piece(r, max(0.0, now - r["at"]))
    for r in db.run("dump_dead"):
        yield _piece(r, None)
    for r in execute("SELECT payload FROM item ORDER BY id"):
        yield Item(r["payload"])
    for r in execute("SELECT name, data, written FROM paper WHERE data IS NOT NULL ORDER BY name"):
        yield Document(r["name"], r["data"], max(0.0, now - r["written"]))


def _piece(row: sqlite3.Row, waited: float | None) -> Kept:
    rank = row["rank"]
    return Kept(
        id=row["id"],
        slot=row["name"],
        payload=row["payload"],
        priority=((rank & 1) - rank) // 2,
        seed=bool(rank & 1),
        ord=row["ord"],
        attempts=row["attempts"],
        waited=waited,
        dead=row["reason"] if row["state"] == DEAD else None,
    )


def load(db: Database, pieces: Iterable[Piece]) -> None:
    crawl = db.crawl()
    now = db.now(crawl)
    if crawl["accepted"] or any_alive(db, now):
        raise NotEmpty(NotEmpty.__doc__)
    loading = _Loading(db, now)
    for piece in pieces:
        loading.put(piece)
    loading.end()


class _Loading:
    def __init__(self, db: Database, now: float) -> None:
        self._db = db
        self._execute = db.connection.execute
        self._now = now
        self._plan = decode_plan(db.crawl()["plan"])
        self._about: About | None = None
        self._ids: dict[str, int] = {}
        self._counts = dict.fromkeys(("waiting", "suspects", "dead"), 0)
        self._served = 0
        self._execute("DELETE FROM slot")
        self._execute("DELETE FROM worker")

    def put(self, piece: Piece) -> None:
        now, execute = self._now, self._execute
        match piece:
            case About():
                self._about = piece
                execute("DELETE FROM stat")
                execute("DELETE FROM state")
                self._db.connection.executemany("INSERT INTO stat VALUES (?, ?)", piece.stats.items())
                self._db.connection.executemany("INSERT INTO state VALUES (?, ?)", piece.state.items())
            case Told():
                value = msgspec.json.encode(piece.override).decode()
                execute("INSERT OR REPLACE INTO override VALUES (?, ?)", (piece.slot, value))
            case Place():
                self._slot(piece)
            case Kept():
                self._entry(piece)
            case Item():
                execute("INSERT INTO item (payload) VALUES (?)", (piece.payload,))
            case Document():
                self._db.run("write_paper", paper=piece.name, data=piece.data, now=now - piece.age)

    def _slot(self, piece: Place) -> None:
        if not self._ids:
            write_rules(self._db, self._plan)
        manners = at(piece.manners, self._now)
        self._served += piece.served
        self._ids[piece.name] = (
            self._db.run(
                "load_slot",
                called=piece.name,
                done=piece.done,
                latency=piece.latency,
                served=self._served if piece.served else 0,
                next_at=self._now + piece.next_in if piece.next_in else _NEVER,
                manners=None if manners == AS_AT_FIRST else _array(manners),
                **treatment_of(self._plan),
            ).lastrowid
            or 0
        )

    def _entry(self, piece: Kept) -> None:
        if piece.slot not in self._ids:
            self._slot(Place(piece.slot, 0, None, False, 0.0, AS_AT_FIRST))
        state = WAITING if piece.waited is None else SUSPECT
        if piece.dead is not None:
            state = DEAD
        self._counts["dead" if state == DEAD else "waiting"] += 1
        self._counts["suspects"] += state == SUSPECT
        self._db.run(
            "load_entry",
            id=piece.id,
            slot=self._ids[piece.slot],
            rank=piece.entry.rank,
            ord=piece.ord,
            payload=piece.payload,
            attempts=piece.attempts,
            state=state,
            at=None if piece.waited is None else self._now - piece.waited,
            reason=piece.dead,
        )

    def end(self) -> None:
        about, db = self._about, self._db
        assert about is not None
        db.run("load_counts")
        db.run(
            "load_crawl",
            run=about.run,
            mode=about.mode,
            seeded=about.seeded,
            finished=about.finished,
            done=about.done,
            served=self._served,
            now=self._now,
            **self._counts,
        )
        # That somebody was in it once is what makes it stopped, and not new.
        if not db.value("SELECT count(*) FROM sqlite_sequence WHERE name = 'worker'"):
            self._execute("INSERT INTO sqlite_sequence VALUES ('worker', 1)")
        crawl = db.crawl()
        changes = Changes(db, crawl, self._now)
        Treating(db, self._plan, changes).follow_plan()
        for slot in self._ids.values():
            changes.slot(slot)  # what comes first in it, and whether it may be served, is seen to with it
        changes.write(seeder=None, seeded=about.seeded, finished=about.finished)


def _array(manners: Manners) -> str:
    return msgspec.json.encode(msgspec.structs.astuple(manners)).decode()
