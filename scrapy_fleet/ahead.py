"""The leases that a worker holds ahead of what it runs: some may run now, others must wait for their time."""

from __future__ import annotations

import heapq
import time

from scrapy_fleet.model import Lease

SOON = 0.001
"""A lease that may run within this time may run now."""


class Ahead:
    def __init__(self) -> None:
        self._ready: list[tuple[int, int, Lease]] = []
        self._timed: list[tuple[float, int, Lease]] = []
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._ready) + len(self._timed)

    @property
    def ready(self) -> int:
        """How many were ready to run when last asked for."""
        return len(self._ready)

    def put(self, lease: Lease) -> bool:
        """Whether it may run now."""
        self._arrived += 1
        now = lease.delay <= SOON
        if now:
            heapq.heappush(self._ready, (lease.rank, self._arrived, lease))
        else:
            heapq.heappush(self._timed, (time.monotonic() + lease.delay, self._arrived, lease))
        return now

    def take(self) -> Lease | None:
        """The best one of those that may run now."""
        now = time.monotonic() + SOON
        while self._timed and self._timed[0][0] <= now:
            _, arrived, lease = heapq.heappop(self._timed)
            heapq.heappush(self._ready, (lease.rank, arrived, lease))
        return heapq.heappop(self._ready)[2] if self._ready else None

    def behind(self, rank: int) -> list[Lease]:
        """Remove those that are ready and rank behind."""
        behind = [lease for own, _, lease in self._ready if own > rank]
        if behind:
            self._ready = [each for each in self._ready if each[0] <= rank]
            heapq.heapify(self._ready)
        return behind

    def all(self) -> list[Lease]:
        """Remove all."""
        everything = [lease for _, _, lease in self._ready + self._timed]
        self._ready, self._timed = [], []
        return everything
