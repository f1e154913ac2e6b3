"""The part of ``doctor`` that looks at a Redis or Valkey server, and at the crawls on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from scrapy_fleet.errors import FleetError
from scrapy_fleet.ops.doctor import Check
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import count, duration, number, size
from scrapy_fleet.store.redis.health import Health, examine
from scrapy_fleet.store.redis.server import OLDEST, RIGHTS

FAR, VERY_FAR = 0.02, 0.2
"""Seconds a round trip may take before it is worth a word."""
CLOCKS_APART = 5.0
LITTLE_MEMORY = 0.8


def examine_server(place: Place, crawl: str | None) -> Iterator[Check]:
    assert place.url is not None
    try:
        health = examine(place.url, place.shown, crawl or "any")
    except FleetError as error:
        yield Check("server", "fail", str(error), "Check FLEET_URL or --url, and that the server runs.")
        return
    yield _version(health, place.shown)
    yield _scripts(health)
    yield _persistence(health)
    yield _eviction(health)
    yield _memory(health)
    yield _round_trip(health)
    yield _clock(health)
    try:
        names = [crawl] if crawl is not None else list(place.crawls())
    except FleetError as error:
        yield Check("crawls", "fail", str(error), "Name the crawl.")
        return
    if not names:
        yield Check("crawls", "ok", "there is none yet")
    for name in names:
        yield from _crawl(place, name)


def _version(health: Health, shown: str) -> Check:
    if health.version is None:
        remedy = f"Let its user ask: ACL SETUSER <user> {RIGHTS}"
        return Check("server", "warn", f"{shown} answers, but does not say its version.", remedy)
    text = f"{health.brand} {health.version} at {shown}"
    release = tuple(int(part) for part in health.version.split(".")[:2] if part.isdecimal())
    if health.brand == "Redis" and release < tuple(map(int, OLDEST.split("."))):
        return Check("server", "fail", f"{text} is too old.", f"Use Redis {OLDEST} or newer, or Valkey.")
    return Check("server", "ok", text)


def _scripts(health: Health) -> Check:
    if health.scripts is not None:
        remedy = f"Let its user run scripts: ACL SETUSER <user> {RIGHTS}"
        return Check("scripts", "fail", f"Scripts cannot be run: {health.scripts}", remedy)
    return Check("scripts", "ok", "they can be run")


def _persistence(health: Health) -> Check:
    remedy = "CONFIG SET appendonly yes, and the same in its configuration file."
    if health.write_failed:
        return Check(
            "persistence", "fail", "The server could not write to its disk.", "See its log; free some space."
        )
    if health.append_only:
        return Check("persistence", "ok", "appendonly: crawls are kept through a restart")
    if health.append_only is None:
        return Check("persistence", "warn", "The server does not say whether it writes to disk.", remedy)
    if health.snapshots is None:
        told = "appendonly is off; whether it writes snapshots, it does not say."
        return Check("persistence", "warn", told, remedy)
    if health.snapshots:
        told = f"Snapshots only (save {health.snapshots}): a restart loses what came after the last."
        return Check("persistence", "warn", told, remedy)
    return Check("persistence", "warn", "Nothing is written to disk: a restart loses every crawl.", remedy)


def _eviction(health: Health) -> Check:
    remedy = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file."
    if health.policy is None:
        return Check("eviction", "warn", "The server does not say what it does when it is full.", remedy)
    if health.evicts:
        told = f"maxmemory-policy is {health.policy}: a full server throws away parts of crawls."
        return Check("eviction", "fail", told, remedy)
    return Check("eviction", "ok", "noeviction: a full server refuses, and the crawl waits")


def _memory(health: Health) -> Check:
    remedy = "Raise maxmemory, or clear crawls that are not needed: scrapy fleet clear <crawl>"
    if health.used is None:
        return Check("memory", "warn", "The server does not say how much it uses.", f"Allow INFO: {RIGHTS}")
    if not health.limit:
        told = f"{size(health.used)} used, without a limit"
        return Check("memory", "ok", told)
    told = f"{size(health.used)} of {size(health.limit)} used"
    if health.used >= health.limit:
        return Check("memory", "fail", f"The server is full: {told}.", remedy)
    if health.used > LITTLE_MEMORY * health.limit:
        return Check("memory", "warn", f"Little is left: {told}.", remedy)
    return Check("memory", "ok", told)


def _round_trip(health: Health) -> Check:
    told = f"{health.round_trip * 1000:.2f} ms"
    remedy = "Run the workers nearer to the server, or raise FLEET_LOOKAHEAD."
    if health.round_trip > VERY_FAR:
        return Check("round trip", "warn", f"{told}: a worker may wait for work.", remedy)
    if health.round_trip > FAR:
        return Check("round trip", "ok", f"{told}; far, but work is asked for ahead")
    return Check("round trip", "ok", told)


def _clock(health: Health) -> Check:
    apart = abs(health.clock)
    if apart > CLOCKS_APART:
        told = f"The server's clock and this machine's are {duration(apart)} apart."
        return Check(
            "clock", "warn", told, "A crawl keeps the server's time, so nothing breaks; set both by NTP."
        )
    return Check("clock", "ok", "the server's and this machine's agree")


def _crawl(place: Place, name: str) -> Iterator[Check]:
    try:
        with closing(place.open(name)) as store:
            snapshot = store.snapshot(0)
    except FleetError as error:
        yield Check("crawl", "fail", str(error), "Check the name, and --url.")
        return
    counts = snapshot.counts
    terms = [f"{number(getattr(counts, term))} {term}" for term in ("waiting", "leased", "done", "dead")]
    whole = counts.waiting + counts.leased + counts.done + counts.dead
    told = f"{name}: {number(counts.accepted)} accepted = {' + '.join(terms)}"
    if whole != counts.accepted:
        remedy = "Please report this; scrapy fleet clear <crawl> begins the crawl anew."
        yield Check("crawl", "fail", f"{told} does not add up.", remedy)
    else:
        yield Check("crawl", "ok", told)
    silent = [worker for worker in snapshot.workers if worker.deadline_in < 0]
    for worker in silent:
        yield Check(
            "workers",
            "warn",
            f"{name}: {worker.id} has been silent; it holds {count(worker.leased, 'request')}.",
            "Nothing is lost: start the crawl again, or let its other workers take over.",
        )
    alive = len(snapshot.workers) - len(silent)
    yield Check("workers", "ok", f"{name}: {count(alive, 'worker')} connected")
    if counts.dead:
        told = f"{name}: {count(counts.dead, 'request')} given up."
        yield Check("dead", "warn", told, f"See why: scrapy fleet dead {name}")
