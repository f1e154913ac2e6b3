"""``import jobdir``: brings a job directory of Scrapy into a crawl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from scrapy_fleet.crawl.plain import pack
from scrapy_fleet.errors import CrawlInUse, FleetError, Unreadable, Unstorable
from scrapy_fleet.keys import key_of
from scrapy_fleet.model import Batch, Counts, Entry, Seeding, Snapshot
from scrapy_fleet.ops.home import Home, find_spider, place_of
from scrapy_fleet.ops.jobdir.reading import Found, Job, Order, Queue
from scrapy_fleet.ops.jobdir.requests import Entries, is_pickle
from scrapy_fleet.ops.jobdir.seen_file import SeenCounts
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import agreed, count, number, paint, plain, print_json
from scrapy_fleet.process import this_worker

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

Seeds = Literal["auto", "run", "skip"]
ENTRIES_AT_ONCE = 500
KEYS_AT_ONCE = 2000
TTL = 600.0
SHOWN = 20
"""How many queues are shown one by one."""

T = TypeVar("T")


class QueueReport(Struct):
    """What is in one queue, and what can be brought over."""

    name: str
    kind: str
    priority: int
    seeds: bool
    readable: int = 0
    pickled: int = 0
    found: Found = msgspec.field(default_factory=Found)
    unreadable: dict[str, int] = {}
    """Why, and how many."""


class Report(Struct):
    """What an import would do."""

    queues: list[QueueReport]
    seen: SeenCounts
    state: list[str] = []
    """Names in ``spider.state`` that come over."""
    left_out: list[str] = []
    """Why others do not."""
    strange: list[str] = []
    crashed: str = ""
    run_seeds: bool = False
    pickled_state: bool = False

    @property
    def readable(self) -> int:
        return sum(queue.readable for queue in self.queues)

    @property
    def unreadable(self) -> int:
        return sum(sum(queue.unreadable.values()) for queue in self.queues)

    @property
    def pickled(self) -> int:
        return sum(queue.pickled for queue in self.queues)

    @property
    def repeats(self) -> int:
        return sum(queue.readable for queue in self.queues if queue.found.repeats)


class Importing:
    """Reads a job directory for a crawl, and brings it in."""

    def __init__(self, job: Job, home: Home, run: int, *, trust_pickle: bool) -> None:
        self.job = job
        self.home = home
        self._run = run
        self._trust_pickle = trust_pickle
        self._lifo = home.options.plan.lifo

    def look(self, seeds: Seeds) -> Report:
        """What is there, and what of it can be read."""
        report = Report([], SeenCounts(), strange=list(self.job.strange), crashed=self.job.why_crashed())
        entries = Entries(self.home, self._run)
        for queue in self.job.queues:
            told = QueueReport(
                queue.name, queue.kind, queue.priority, queue.seeds, found=Found(), unreadable=Counter()
            )
            for _ in self._entries(queue, entries, told):
                told.readable += 1
            if told.found.crashed and not report.crashed:
                report.crashed = f"{told.name}: {told.found.crashed}"
            report.queues.append(told)
        for _ in self.job.fingerprints(report.seen):
            pass
        report.pickled_state = self.job.state_path.is_file()
        if self._trust_pickle:
            state, report.left_out = self._state()
            report.state = sorted(state)
        # Whether all seeds had been run is known after a clean end alone.
        report.run_seeds = seeds == "run" or (seeds == "auto" and bool(report.crashed))
        return report

    def bring(self, store: Store, report: Report, *, seen: bool) -> dict[str, int]:
        """Into the crawl; how many requests are new to it."""
        worker = this_worker()
        joined = store.join(worker, self.home.options.plan, TTL, run=self._run)
        batch = Batch(worker=worker.id, seq=0)
        brought = known = 0
        entries = Entries(self.home, self._run)
        found = (each for queue in self.job.queues for each in self._entries(queue, entries))
        for adds in _pieces(found, ENTRIES_AT_ONCE):
            batch = msgspec.structs.replace(batch, seq=batch.seq + 1, adds=tuple(adds))
            receipt = store.commit(batch)
            brought += len(adds) - len(receipt.known)
            known += len(receipt.known)
        batch = msgspec.structs.replace(batch, adds=())
        # After the requests: what is marked as seen is not queued any more.
        keys = map(key_of, self.job.fingerprints(SeenCounts())) if seen else iter(())
        for marks in _pieces(keys, KEYS_AT_ONCE):
            batch = msgspec.structs.replace(batch, seq=batch.seq + 1, marks=tuple(marks))
            store.commit(batch)
        state = self._state()[0] if self._trust_pickle and not joined.resumed else {}
        seeded = not report.run_seeds and joined.seeding is Seeding.MINE
        store.commit(Batch(worker=worker.id, seq=batch.seq + 1, state={**state}, seeded=seeded, leave=True))
        return {"brought": brought, "known": known}

    def _entries(self, queue: Queue, entries: Entries, told: QueueReport | None = None) -> Iterator[Entry]:
        """Those of a queue that can be read, such that the crawl hands them out as Scrapy would."""
        told = told or QueueReport(queue.name, queue.kind, queue.priority, queue.seeds, unreadable=Counter())
        last_comes_first = self._lifo and not queue.seeds
        newest_first = (queue.order == "lifo") != last_comes_first
        for record in queue.records(told.found, newest_first=newest_first):
            if is_pickle(record.data):
                told.pickled += 1
                if not self._trust_pickle:
                    continue
            try:
                yield entries.entry(queue, record)
            except (Unreadable, Unstorable) as error:
                reason = str(error)
                told.unreadable[reason] = told.unreadable.get(reason, 0) + 1

    def _state(self) -> tuple[dict[str, bytes], list[str]]:
        """``spider.state``, and why parts of it are left out."""
        state: dict[str, bytes] = {}
        reasons: list[str] = []
        try:
            for name, value in self.job.state().items():
                if not isinstance(name, str):
                    reasons.append(f"its key {name!r:.80} is no text")
                    continue
                try:
                    state[name] = pack(value, f"state[{name!r}]")
                except Unstorable as error:
                    reasons.append(str(error))
        except (Unreadable, OSError) as error:
            reasons.append(str(error))
        return state, reasons


def _pieces(things: Iterable[T], size: int) -> Iterator[list[T]]:
    things = iter(things)
    while piece := list(islice(things, size)):
        yield piece


# The command


def import_jobdir(place: Place, opts: Any) -> int:
    home = Home(find_spider(place, opts.spider, opts.crawl), place.settings)
    job = Job(Path(opts.path), _sqlite_order(home))
    place, name = place_of(place, home, opts.crawl)
    snapshot = _before(place, name)
    importing = Importing(job, home, snapshot.run, trust_pickle=opts.trust_pickle)
    report = importing.look(opts.seeds)
    if not opts.as_json:
        show(job, report, place.shown, snapshot, seen=not opts.forget_seen)
    if report.pickled and not opts.trust_pickle:
        raise FleetError(
            f"{count(report.pickled, 'request')} in {job.path} are pickled. Pickles can be made to run code. "
            "If nobody else could write to this folder, add --trust-pickle: they are read without running "
            "anything that is in them. Nothing was imported."
        )
    done: dict[str, int] = {}
    sure = opts.sure or (not opts.as_json and agreed(f"Import it into crawl {name!r}?"))
    if sure:
        with closing(place.connect(name)) as store:
            done = importing.bring(store, report, seen=not opts.forget_seen)
            snapshot = store.snapshot(0)
    if opts.as_json:
        print_json({"crawl": name, "url": place.shown, "imported": sure, **done, **_data(report)})
        return 0
    if not sure:
        print("Nothing was changed. Import it without being asked: --yes")
        return 2
    _tell(name, done, snapshot)
    return 0


def _before(place: Place, name: str) -> Snapshot:
    """The crawl as it is; one that is not there is not made yet."""
    if place.has_files and not place.path(name).exists():
        return Snapshot(name, 1, "new", Counts(), 0, 0, 0, (), (), {})
    with closing(place.connect(name)) as store:
        snapshot = store.snapshot(0)
    if any(worker.deadline_in > 0 for worker in snapshot.workers):
        raise CrawlInUse(
            f"Workers are in crawl {name!r}: nothing is imported. Stop them first: scrapy fleet stop {name}"
        )
    return snapshot


def _sqlite_order(home: Home) -> Order:
    """A queue in SQLite does not say which end of it is taken first; its class does."""
    return "fifo" if "fifo" in str(home.crawler.settings["SCHEDULER_DISK_QUEUE"]).lower() else "lifo"


def _data(report: Report) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(report)
    totals = ("readable", "unreadable", "pickled", "repeats")
    return {**data, **{name: getattr(report, name) for name in totals}}


def show(job: Job, report: Report, url: str, snapshot: Snapshot, *, seen: bool) -> None:
    print(f"{paint(plain(str(job.path)), 'bold')} -> crawl {plain(snapshot.crawl)} at {url}")
    for queue in report.queues[:SHOWN]:
        print(f"  {plain(queue.name)}  {queue.kind.upper()}  {_counts(queue)}")
    if len(report.queues) > SHOWN:
        print(f"  and {number(len(report.queues) - SHOWN)} queues more")
    for name in report.strange[:SHOWN]:
        print(f"  {plain(name)}  is no queue, and is left out")
    print(f"  requests  {_total(report)}")
    for reason, many in _reasons(report)[:SHOWN]:
        print(f"    {number(many)} cannot be read: {plain(reason)}")
    torn = f", {count(report.seen.unreadable, 'piece')} cannot be read" if report.seen.unreadable else ""
    kept = "" if seen else " (only to be counted: --forget-seen)"
    print(f"  requests.seen  {count(report.seen.read, 'fingerprint')}{torn}{kept}")
    if report.pickled_state:
        names = ", ".join(map(plain, report.state)) or "nothing"
        print(f"  spider.state  {names}")
        for reason in report.left_out:
            print(f"    left out: {plain(reason)}")
    if report.crashed:
        print(f"  Scrapy did not end in order: {plain(report.crashed)}.")
        print("    What it was fetching then is in no file. Start requests that are done run again:", end=" ")
        print("yes." if report.run_seeds else "no.")
    if report.repeats:
        them = count(report.repeats, "request")
        print(f"    {them} of FIFO queues may have been fetched: what was taken out was not written down.")


def _counts(queue: QueueReport) -> str:
    parts = (
        [f"priority {queue.priority}", "start requests"] if queue.seeds else [f"priority {queue.priority}"]
    )
    parts.append(count(queue.found.records, "request"))
    if queue.found.lost:
        parts.append(f"{number(queue.found.lost)} bytes are no request")
    if queue.found.problem:
        parts.append(f"stopped: {plain(queue.found.problem)}")
    return ", ".join(parts)


def _total(report: Report) -> str:
    pickled = f", {number(report.pickled)} of them pickled" if report.pickled else ""
    lost = sum(queue.found.lost for queue in report.queues)
    bytes_lost = f"; {number(lost)} bytes belong to no request" if lost else ""
    return (
        f"{number(report.readable)} can be imported, {number(report.unreadable)} cannot be read"
        f"{pickled}{bytes_lost}"
    )


def _reasons(report: Report) -> list[tuple[str, int]]:
    together: Counter[str] = Counter()
    for queue in report.queues:
        together.update(queue.unreadable)
    return together.most_common()


def _tell(name: str, done: dict[str, int], after: Snapshot) -> None:
    known = f"; {number(done['known'])} were known to it" if done["known"] else ""
    print(f"Imported {count(done['brought'], 'request')} into crawl {plain(name)!r}{known}.")
    counts = after.counts
    print(f"It has {number(counts.waiting)} waiting, {number(after.seen)} seen. Start it as before.")
