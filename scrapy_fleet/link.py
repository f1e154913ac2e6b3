"""The one thread that talks to the store."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from scrapy_fleet.errors import FleetError, GivenUp, StoreAway, StoreEmptied, StoreError
from scrapy_fleet.model import Batch, Plan, Receipt, Worker
from scrapy_fleet.ports import Loop, Reports
from scrapy_fleet.process import gone
from scrapy_fleet.store.base import Store

logger = logging.getLogger(__name__)

TELL_EVERY = 60.0
"""Seconds between two words on a store that is away, also when it comes and goes."""

T = TypeVar("T")


class Link:
    """Carries commits to the store, one at a time, and beats in between."""

    def __init__(
        self, open_store: Callable[[], Store], loop: Loop, reports: Reports, worker_timeout: float
    ) -> None:
        self._open_store = open_store
        self._loop = loop
        self._reports = reports
        self._ttl = worker_timeout
        # Often enough that others notice within a second what a silent worker held.
        self._beat_every = min(1.0, worker_timeout / 3)
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._store: Store
        self._worker: Worker | None = None
        self._beaten_at = 0.0
        self._told_at = -math.inf
        self._thread = threading.Thread(target=self._work, name="scrapy-fleet", daemon=True)

    # On the loop's thread

    def start(self, worker: Worker, plan: Plan) -> None:
        self._queue.put(lambda: self._enter(worker, plan))
        self._thread.start()

    def join(self, worker: Worker, plan: Plan, run: int | None) -> None:
        """Come back after having been given up."""
        self._queue.put(lambda: self._join(worker, plan, run))

    def closing(self) -> None:
        """From now on, do not wait for ever for a store that is away."""
        self._stopping.set()

    def commit(self, batches: list[Batch]) -> None:
        self._queue.put(lambda: self._commit(batches))
        # The loop lets go of the interpreter for a moment. Otherwise the thread gets it when the loop has
        # nothing to do, or after five milliseconds: too late for a store that could have answered by then.
        time.sleep(0)

    def ask(self, call: Callable[[Store], T], answer: Callable[[T | None], None]) -> None:
        self._queue.put(lambda: self._ask(call, answer))

    def stop(self) -> None:
        self._queue.put(None)

    # On its own thread

    def _work(self) -> None:
        try:
            while (call := self._next()) is not None:
                call()
        except FleetError as error:
            failure = error
            self._loop.post(lambda: self._reports.failed(failure))
        except Exception as error:
            logger.exception("The thread that talks to the store broke.")
            broken = StoreError(f"The thread that talks to the store broke: {error!r}. Please report this.")
            self._loop.post(lambda: self._reports.failed(broken))
        finally:
            if hasattr(self, "_store"):
                self._store.close()

    def _next(self) -> Callable[[], None] | None:
        while True:
            wait = self._beaten_at + self._beat_every - time.monotonic() if self._worker else None
            if wait is not None and wait <= 0:
                return self._beat
            try:
                return self._queue.get(timeout=wait)
            except queue.Empty:
                continue

    def _enter(self, worker: Worker, plan: Plan) -> None:
        self._store = self._open_store()
        self._join(worker, plan, None)

    def _join(self, worker: Worker, plan: Plan, run: int | None) -> None:
        if run is None:
            joined = self._store.join(worker, plan, self._ttl)  # one that cannot begin says so at once
        else:
            joined = self._insist(lambda: self._store.join(worker, plan, self._ttl, run=run))
        orphans = tuple(other.id for other in joined.others if gone(other))
        if orphans:
            came_back = self._insist(lambda: self._store.give_up(orphans))
            logger.info("%d requests came back from %d workers that had died here.", came_back, len(orphans))
            joined = self._insist(lambda: self._store.join(worker, plan, self._ttl, run=run))
        self._worker = worker
        self._beaten_at = time.monotonic()
        self._loop.post(lambda: self._reports.joined(joined))

    def _commit(self, batches: list[Batch]) -> None:
        if self._worker is None:
            self._loop.post(lambda: self._reports.unsent(batches))
            return
        receipts: list[Receipt] = []
        sent = 0.0

        def send(batch: Batch) -> Receipt:
            nonlocal sent
            sent = time.monotonic()
            return self._store.commit(batch)

        try:
            for batch in batches:
                receipts.append(self._insist(partial(send, batch)))  # noqa: PERF401
        except (GivenUp, StoreEmptied) as error:
            self._lose(batches[len(receipts) :], error)
            return
        if batches[-1].leave:
            self._worker = None
        span = (sent, time.monotonic())
        self._loop.post(lambda: self._reports.committed(batches, receipts, span))

    def _ask(self, call: Callable[[Store], T], answer: Callable[[T | None], None]) -> None:
        try:
            result = self._insist(lambda: call(self._store))
        except (GivenUp, StoreEmptied):
            result = None  # the next commit or beat sees to it
        self._loop.post(lambda: answer(result))

    def _beat(self) -> None:
        assert self._worker is not None
        worker = self._worker.id
        try:
            beat = self._insist(lambda: self._store.beat(worker))
        except (GivenUp, StoreEmptied) as error:
            self._lose([], error)
            return
        self._beaten_at = time.monotonic()
        self._loop.post(lambda: self._reports.beaten(beat))

    def _lose(self, left: list[Batch], error: FleetError) -> None:
        """The store does not know this worker any more; these batches were not committed."""
        self._worker = None
        if isinstance(error, StoreEmptied):
            self._loop.post(lambda: self._reports.emptied(left, error))
        else:
            self._loop.post(lambda: self._reports.given_up(left))

    def _insist(self, call: Callable[[], T]) -> T:
        """Try until the store answers; a worker that is closing does not try for ever."""
        began = time.monotonic()
        pause = 0.05
        told = False
        while True:
            try:
                result = call()
            except StoreAway as error:
                now = time.monotonic()
                if self._stopping.is_set() and now - began > self._ttl:
                    raise
                if now - self._told_at >= TELL_EVERY:
                    logger.warning("%s The crawl pauses until the store is back; nothing is lost.", error)
                    self._told_at, told = now, True
                time.sleep(pause)
                pause = min(2 * pause, 2.0)
            else:
                if told:
                    logger.info("The store is back after %.1f s.", time.monotonic() - began)
                return result
