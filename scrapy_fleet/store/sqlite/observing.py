"""Looking into a crawl without touching it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from scrapy_fleet import politeness
from scrapy_fleet.model import Kind, Row, SlotView, Snapshot, Status, WorkerView
from scrapy_fleet.store.sqlite.changes import DEAD, LEASED, SUSPECT, WAITING, text
from scrapy_fleet.store.sqlite.database import Database, counts_of, decode_plan
from scrapy_fleet.store.sqlite.items import total_of
from scrapy_fleet.store.sqlite.treating import manners_of, override_of

_STATES: dict[Kind, list[int]] = {"waiting": [WAITING, SUSPECT], "leased": [LEASED], "dead": [DEAD]}


def snapshot(db: Database, slots: int) -> Snapshot:
    crawl = db.crawl()
    now = db.glance(crawl)
    workers = tuple(
        WorkerView(r["id"], r["host"], r["pid"], r["leased"], now - r["joined"], r["deadline"] - now)
        for r in db.run("workers")
    )
    status: Status = "running" if crawl["seeded"] else "seeding"
    if crawl["finished"]:
        status = "finished"
    elif not any(worker.deadline_in > 0 for worker in workers):
        begun = crawl["accepted"] or db.value("SELECT count(*) FROM sqlite_sequence WHERE name = 'worker'")
        status = "stopped" if begun else "new"
    names = [r["name"] for r in db.run("busiest", n=slots)]
    return Snapshot(
        crawl=crawl["name"],
        run=crawl["run"],
        status=status,
        counts=counts_of(crawl),
        seen=crawl["seen"],
        items=total_of(db),
        slot_count=db.value("SELECT count(*) FROM slot"),
        slots=tuple(_views(db, names, crawl, now)),
        workers=workers,
        stats={r["name"]: r["value"] for r in db.connection.execute("SELECT name, value FROM stat")},
        mode=crawl["mode"],
    )


def slot(db: Database, name: str) -> SlotView | None:
    crawl = db.crawl()
    return next(_views(db, [name], crawl, db.glance(crawl)), None)


def _views(db: Database, names: list[str], crawl: sqlite3.Row, now: float) -> Iterator[SlotView]:
    """These slots, as far as they were met or something was told about them."""
    plan = decode_plan(crawl["plan"])
    for r in db.run("views", names=text(names)):
        rule, manners, override = (
            plan.rule_of(r["name"]),
            manners_of(r["manners"]),
            override_of(r["override"]),
        )
        if r["id"] is None and override is None:
            continue
        next_at = r["next_at"] or 0.0
        yield SlotView(
            name=r["name"],
            waiting=r["waiting"] or 0,
            leased=r["leased"] or 0,
            done=r["done"] or 0,
            delay=politeness.delay_of(manners, plan, rule, override),
            concurrency=politeness.concurrency_of(manners, plan, rule, override),
            latency=r["latency"],
            next_in=max(0.0, politeness.due_at(manners, next_at) - now),
            reason=politeness.why_it_waits(
                *(manners, plan, rule, override),
                waiting=r["waiting"] or 0,
                active=r["active"] or 0,
                next_at=next_at,
                now=now,
            ),
            robots=manners.robots,
            override=override,
        )


def scan(db: Database, kind: Kind, slot: str | None, after: int, limit: int) -> list[Row]:
    if kind == "waiting" and slot is not None:
        rows = db.run("scan_slot", slot=slot, after=after, limit=limit).fetchall()
        if len(rows) < limit:
            queued = db.connection.execute("SELECT queued FROM slot WHERE name = ?", (slot,)).fetchone()
            skip = max(0, after - queued["queued"]) if queued else 0
            rows += db.run("scan_suspects", slot=slot, after=skip, limit=limit - len(rows)).fetchall()
    else:
        rows = db.run("scan", states=text(_STATES[kind]), slot=slot, after=after, limit=limit).fetchall()
    return [
        Row(
            id=r["id"],
            slot=r["name"],
            priority=((r["rank"] & 1) - r["rank"]) // 2,
            seed=bool(r["rank"] & 1),
            attempts=r["attempts"],
            payload=r["payload"],
            worker=r["worker_id"],
            reason=r["reason"],
        )
        for r in rows
    ]
