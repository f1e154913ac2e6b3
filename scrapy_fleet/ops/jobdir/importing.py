"""``import jobdir``: brings a job directory of Scrapy into a crawl."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from scrapy import Request

from scrapy_fleet.crawl.plain import pack
from scrapy_fleet.errors import CrawlInUse, FleetError, Unreadable, Unstorable
from scrapy_fleet.keys import key_of
from scrapy_fleet.model import Batch, Counts, Entry, Seeding, Snapshot
from scrapy_fleet.ops.home import Home, find_spider, place_of
from scrapy_fleet.ops.jobdir.reading import Found, Job, Order, Queue, Record
from scrapy_fleet.ops.jobdir.reporting import QueueReport, Report, data_of, show, tell
from scrapy_fleet.ops.jobdir.requests import Entries, is_pickle
from scrapy_fleet.ops.jobdir.seen_file import SeenCounts
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import agreed, count, print_json
from scrapy_fleet.process import this_worker

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

Seeds = Literal["auto", "run", "skip"]
ENTRIES_AT_ONCE = 500
KEYS_AT_ONCE = 2000
TTL = 600.0
IN_HAND = 500
"""Pages to which one of the last so many requests of a queue leads may still have been parsed."""
T = TypeVar("T")


class Importing:
    """Reads a job directory for a crawl, and brings it in."""

    def __init__(self, job: Job, home: Home, run: int, *, trust_pickle: bool) -> None:
        self.job = job
        self.home = home
        self._run = run
        self._trust_pickle = trust_pickle
        self._lifo = home.options.plan.lifo
        self._unsure: set[str] = set()
        """Queues of which it is not known what was taken out."""
        self._fetched: frozenset[str] = frozenset()

    def look(self, seeds: Seeds, *, seen: bool = True) -> Report:
        """What is there, and what of it can be read. Without ``seen`` nothing counts as fetched."""
        report = Report([], SeenCounts(), strange=list(self.job.strange), crashed=self.job.why_crashed())
        entries = Entries(self.home, self._run)
        for queue in self.job.queues:
            told = self._count(queue, entries)
            if told.found.repeats and seen:
                self._unsure.add(queue.name)
            if told.found.crashed and not report.crashed:
                report.crashed = f"{told.name}: {told.found.crashed}"
            report.queues.append(told)
        if self._unsure:
            self._fetched = self._with_links()
            entries = Entries(self.home, self._run)
            report.queues = [self._count(queue, entries) for queue in self.job.queues]
        for _ in self.job.fingerprints(report.seen):
            pass
        report.pickled_state = self.job.state_path.is_file()
        if self._trust_pickle:
            state, report.left_out = self._state()
            report.state = sorted(state)
        # Whether all seeds had been run is known after a clean end alone.
        report.run_seeds = seeds == "run" or (seeds == "auto" and bool(report.crashed))
        return report

    def _count(self, queue: Queue, entries: Entries) -> QueueReport:
        told = QueueReport(queue.name, queue.kind, queue.priority, queue.seeds, unreadable=Counter())
        told.readable = sum(isinstance(each, Entry) for each in self._entries(queue, entries, told))
        return told

    def _with_links(self) -> frozenset[str]:
        """The pages from which links in the queues come, but for those that may have been in hand."""
        found: set[str] = set()
        entries = Entries(self.home, self._run)
        for queue in self.job.queues:
            latest: deque[str] = deque(maxlen=IN_HAND)
            for record in queue.records(Found()):
                if len(latest) == IN_HAND:
                    found.add(latest[0])
                latest.append(self._referer(entries, record))
        return frozenset(found - {""})

    def _referer(self, entries: Entries, record: Record) -> str:
        if is_pickle(record.data) and not self._trust_pickle:
            return ""
        try:
            return (entries.request(record).headers.get("Referer") or b"").decode("latin-1")
        except Unreadable:
            return ""

    def bring(self, store: Store, report: Report, *, seen: bool) -> dict[str, int]:
        """Into the crawl; how many requests are new to it."""
        worker = this_worker()
        joined = store.join(worker, self.home.options.plan, TTL, run=self._run)
        batch = Batch(worker=worker.id, seq=0)
        brought = known = 0
        entries = Entries(self.home, self._run)
        fetched: list[int] = []
        found = (each for queue in self.job.queues for each in self._entries(queue, entries))
        for adds in _pieces(_without(found, fetched), ENTRIES_AT_ONCE):
            batch = msgspec.structs.replace(batch, seq=batch.seq + 1, adds=tuple(adds))
            receipt = store.commit(batch)
            brought += len(adds) - len(receipt.known)
            known += len(receipt.known)
        batch = msgspec.structs.replace(batch, adds=())
        # After the requests: what is marked as seen is not queued any more.
        keys = chain(fetched, map(key_of, self.job.fingerprints(SeenCounts()))) if seen else iter(())
        for marks in _pieces(keys, KEYS_AT_ONCE):
            batch = msgspec.structs.replace(batch, seq=batch.seq + 1, marks=tuple(marks))
            store.commit(batch)
        state = self._state()[0] if self._trust_pickle and not joined.resumed else {}
        seeded = not report.run_seeds and joined.seeding is Seeding.MINE
        store.commit(Batch(worker=worker.id, seq=batch.seq + 1, state={**state}, seeded=seeded, leave=True))
        return {"brought": brought, "known": known}

    def _entries(
        self, queue: Queue, entries: Entries, told: QueueReport | None = None
    ) -> Iterator[Entry | int]:
        """Those of a queue that can be read, such that the crawl hands them out as Scrapy would; and the keys
        of those that have been fetched."""
        told = told or QueueReport(queue.name, queue.kind, queue.priority, queue.seeds, unreadable=Counter())
        last_comes_first = self._lifo and not queue.seeds
        newest_first = (queue.order == "lifo") != last_comes_first
        for record in queue.records(told.found, newest_first=newest_first):
            if is_pickle(record.data):
                told.pickled += 1
                if not self._trust_pickle:
                    continue
            try:
                request = entries.request(record)
                if queue.name in self._unsure and self._is_fetched(request):
                    told.fetched += 1
                    yield entries.key(request)
                else:
                    yield entries.entry(queue, record, request)
            except (Unreadable, Unstorable) as error:
                reason = str(error)
                told.unreadable[reason] = told.unreadable.get(reason, 0) + 1

    def _is_fetched(self, request: Request) -> bool:
        plain_page = request.method == "GET" and not request.body and not request.dont_filter
        return plain_page and request.url in self._fetched

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


def _without(found: Iterable[Entry | int], keys: list[int]) -> Iterator[Entry]:
    """The entries alone; keys are put aside."""
    for each in found:
        if isinstance(each, Entry):
            yield each
        else:
            keys.append(each)


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
    report = importing.look(opts.seeds, seen=not opts.forget_seen)
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
        print_json({"crawl": name, "url": place.shown, "imported": sure, **done, **data_of(report)})
        return 0
    if not sure:
        print("Nothing was changed. Import it without being asked: --yes")
        return 2
    tell(name, done, snapshot)
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
