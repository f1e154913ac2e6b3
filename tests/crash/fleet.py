"""Workers of one crawl, wherever it is stored, and the means to hurt them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace
from scrapy import Spider

from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.crawl.plain import unpack
from scrapy_fleet.errors import StoreAway
from scrapy_fleet.model import Batch, Counts, Entry, Kind, Outcome, Plan, Row, Rule, SeenPlan, Snapshot
from scrapy_fleet.process import this_worker
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.base import Store
from tests.crash.worker import Job, work

PATIENCE = 90.0
"""Seconds after which a test gives up; nothing waits that long unless something is wrong."""

# Forked from a process that has Scrapy loaded: a new worker is there in a moment.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.crash.worker"])

SETTINGS: dict[str, Any] = {
    "ADDONS": {"scrapy_fleet.Addon": 500},
    "ITEM_PIPELINES": {"scrapy_fleet.FleetPipeline": 900},
    "CONCURRENT_REQUESTS": 8,
    # Twice what the workers run at a time: they hold requests ahead, too.
    "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
    "FLEET_WORKER_TIMEOUT": 10,
    "LOG_LEVEL": "INFO",
    "REMOTE_CONTROL_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
}


class Worker:
    """One worker process."""

    def __init__(self, job: Job, log: Path) -> None:
        self.log = log
        self._told, telling = _context.Pipe(duplex=False)
        self._process = _context.Process(target=work, args=(job, telling), daemon=True)
        self._process.start()
        telling.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def opened(self) -> None:
        """Wait until it has joined the crawl."""
        self._hear("opened")

    def ended(self) -> dict[str, Any]:
        """Wait until it has ended in order; its stats."""
        stats = self._hear("ended")
        self.gone()
        assert isinstance(stats, dict)
        return stats

    def gone(self) -> None:
        """Wait until the process is no more, however it ended."""
        self._process.join(PATIENCE)
        assert self._process.exitcode is not None, f"{self} does not end"

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def was_killed(self) -> bool:
        return self._process.exitcode == -signal.SIGKILL

    @property
    def sentinel(self) -> int:
        """Readable when the process has ended."""
        return self._process.sentinel

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.gone()

    def suspended(self) -> None:
        """Wait until all its threads stand still."""
        self._poll(self._stands_still, "is not suspended")

    def _stands_still(self) -> bool:
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return all((thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    def logged(self, what: str) -> None:
        """Wait until this is in its log."""
        self._poll(lambda: what in self.text(), f"did not log {what!r}")

    def _poll(self, until: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < deadline, f"{self} {otherwise}:\n{self.text()[-3000:]}"
            time.sleep(0.005)

    def text(self) -> str:
        """What it logged."""
        return self.log.read_text() if self.log.exists() else ""

    def _hear(self, wanted: str) -> object:
        until = time.monotonic() + PATIENCE
        while self._told.poll(max(0.0, until - time.monotonic())):
            try:
                event, data = self._told.recv()
            except EOFError:
                break
            if event == wanted:
                return data
        raise AssertionError(f"{self} did not tell that it has {wanted}:\n{self.text()[-3000:]}")

    def __repr__(self) -> str:
        return f"<worker {self.pid}, log {self.log}>"


class Fleet:
    """The workers of one crawl. Those that still run are killed at the end of the block."""

    def __init__(
        self,
        folder: Path,
        spider: type[Spider],
        *,
        url: str | None = None,
        settings: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        self.folder = folder
        self.url = f"sqlite://{folder}/crawl.db" if url is None else url
        own = settings or {}
        self.crawl = own.get("FLEET_CRAWL", spider.name)
        self.job = Job(spider, {**SETTINGS, "FLEET_URL": self.url, **own}, arguments)
        self.workers: list[Worker] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.alive:
                worker.kill()

    def start(self, *, skew: float = 0.0, **settings: Any) -> Worker:
        """Start a worker, and wait until it has joined."""
        worker = self.begin(skew=skew, **settings)
        worker.opened()
        return worker

    def begin(self, *, skew: float = 0.0, **settings: Any) -> Worker:
        """Start a worker, and do not wait."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        own = {**self.job.settings, "LOG_FILE": str(log), **settings}
        worker = Worker(Job(self.job.spider, own, self.job.arguments, skew), log)
        self.workers.append(worker)
        return worker

    def running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive]

    @contextmanager
    def held_open(self, plan: Plan | None = None) -> Iterator[None]:
        """Within this block the crawl does not finish, however fast its workers are: one request, which
        leads nowhere, is in the hands of this process. At least one worker must have joined before."""
        guard = replace(this_worker(), id="guard")
        with self.store() as store:
            # The newest plan is believed: it must be as SETTINGS say.
            seen = store.seen_info().plan or SeenPlan()
            store.join(guard, plan or Plan(rule=Rule(concurrency=32), seen=seen), ttl=3600)
            held = Entry(slot="guard", payload=b"", priority=1 << 40)
            (lease,) = store.commit(Batch(worker=guard.id, seq=1, adds=(held,), want=1)).leases
            assert lease.slot == "guard"
            yield
            store.commit(Batch(worker=guard.id, seq=2, outcomes=(Outcome(lease.token),), leave=True))

    def finish(self) -> list[float]:
        """Wait for all who run, and see that they end as they should; when each did (monotonic clock)."""
        ends = []
        for worker in self.running():
            stats = worker.ended()
            reason = stats["finish_reason"]
            assert reason == "finished", f"{worker} ended with {reason!r}"
            ends.append(stats["ended_at"])
        snapshot = self.snapshot()
        assert snapshot.status == "finished", snapshot
        assert snapshot.counts.open == 0, snapshot
        assert adds_up(snapshot.counts), snapshot
        return sorted(ends)

    # Looking into the store

    @contextmanager
    def store(self, *, create: bool = False) -> Iterator[Store]:
        store = open_store(self.url, self.crawl, create=create)
        try:
            yield store
        finally:
            store.close()

    def snapshot(self) -> Snapshot:
        with self.store() as store:
            return store.snapshot()

    def held_by(self, *workers: Worker) -> Counter[str]:
        """The paths of what these workers hold, as the store sees it."""
        pids = {worker.pid for worker in workers}
        ids = {view.id for view in self.snapshot().workers if view.pid in pids}
        decode = Codec(self.job.spider(**self.job.arguments)).decode
        held = [decode(row.payload) for row in self.scan("leased") if row.worker in ids]
        return Counter(urlsplit(request.url).path for request in held)

    def give_up(self, worker: Worker) -> None:
        """Take everything from a worker, as if it had been silent for too long."""
        with self.store() as store:
            store.give_up(tuple(view.id for view in store.snapshot().workers if view.pid == worker.pid))

    def beats_of(self, worker: Worker, times: int) -> None:
        """Wait until it has told the store so many times that it is alive."""
        latest = 0.0

        def told_again(look: Snapshot) -> bool:
            nonlocal latest, times
            for view in look.workers:
                # Its deadline, counted from when it joined: it moves when the worker commits or beats.
                deadline = view.age + view.deadline_in
                if view.pid == worker.pid and deadline > latest + 0.01:
                    latest, times = deadline, times - 1
            return times < 0

        self.wait(told_again, f"{worker} beats")

    def scan(self, kind: Kind) -> list[Row]:
        with self.store() as store:
            return store.scan(kind, limit=1_000_000)

    def items(self) -> list[int]:
        """The pages of the items kept, sorted."""
        with self.store() as store:
            found = [unpack(item) for _, item in store.items(limit=1_000_000)]
        return sorted(item["page"] for item in found)  # type: ignore[index]

    def whole_items(self) -> list[Any]:
        """The items kept, in the order of their pages."""
        with self.store() as store:
            found: list[Any] = [unpack(item) for _, item in store.items(limit=1_000_000)]
        return sorted(found, key=lambda item: item["page"])

    def suspend(self, worker: Worker) -> None:
        """Suspend a worker, but not while it has a file locked: then all others would stand still too."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            worker.signal(signal.SIGSTOP)
            worker.suspended()
            if self._is_unlocked():
                return
            worker.signal(signal.SIGCONT)
            time.sleep(0.01)
        raise AssertionError(f"{worker} always has the file locked")

    def _is_unlocked(self) -> bool:
        if not self.url.startswith("sqlite:"):
            return True
        database = sqlite3.connect(self.url.removeprefix("sqlite://"), timeout=0, isolation_level=None)
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        finally:
            database.close()
        return True

    def wait(self, until: Callable[[Snapshot], bool], what: str) -> None:
        """Wait for something that only the store can tell."""
        deadline = time.monotonic() + PATIENCE
        with self.store() as store:
            while not until(store.snapshot()):
                assert time.monotonic() < deadline, f"it did not come: {what}"
                time.sleep(0.02)


def adds_up(counts: Counts) -> bool:
    return counts.accepted == counts.waiting + counts.leased + counts.done + counts.dead


class Auditor:
    """Looks at the counters all the while, from beside the crawl."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.looks = 0
        self.wrong: list[Counts] = []

    def __enter__(self) -> Auditor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with self._fleet.store() as store:
            while not self._over.wait(0.03):
                try:
                    counts = store.snapshot().counts
                except StoreAway:  # its server is being hurt, too
                    continue
                self.looks += 1
                if not adds_up(counts):
                    self.wrong.append(counts)
