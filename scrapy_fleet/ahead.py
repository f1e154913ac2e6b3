"""The leases that a worker holds ahead of what it runs: some may run now, others must wait.

**Late leases.** A paced lease has its time, and the next one of its slot, maybe at another worker, has the
time after it. One that could not run at its time is handed back, since it would come too close to the next.
How late is too late grows while nothing is in time, so that a worker that is too slow goes on all the same.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Callable

from scrapy_fleet.appetite import Appetite
from scrapy_fleet.model import Lease, Start
from scrapy_fleet.politeness import leeway_of

SOON = 0.001
"""A lease that may run within this time may run now."""
SLACK = 0.07
"""How late a lease may run, as a part of its slot's distance; the way to the site takes its time, too."""
FORGIVEN = 0.05
"""How much of being late the store is not told: what a calm loop takes costs the host no time."""
WAY = 0.5
"""How much of its leeway a lease may have used up; the rest is for its way through the downloader."""
HEAD_START = 0.25
"""How much sooner than its time a lease is handed to Scrapy, at most: in seconds, and as a part of its slot's
distance. One that is through before its time waits for it."""
EARLY = 0.03
"""How much sooner than its time a lease is let go, at most, as a part of its slot's distance. With FORGIVEN,
two requests stay nine tenths of it apart, should the rest of the way take no time at once."""
WAYS = 32
"""The ways of so many leases tell what to expect of the next."""
JUDGED_FROM = 0.1
"""Where requests are closer to each other than this, in seconds, their way through Scrapy is not judged."""
PATIENT = 3
"""How often in a row it is insisted on that."""


class Ahead:
    def __init__(self) -> None:
        self._ready: list[tuple[int, int, Lease]] = []
        self._timed: list[tuple[float, int, Lease]] = []
        self._spares: dict[str, list[Lease]] = {}
        self.spares = 0
        """How many wait for the room of another."""
        self._due: dict[int, tuple[float, int]] = {}
        """When a paced lease that has not begun should, at the earliest, and as which it came."""
        self._plans: dict[int, tuple[float, float]] = {}
        """When a lease with leeway that has not begun should be handed out, and be let go."""
        self._out: dict[int, float] = {}
        """When it was let go."""
        self._ways: deque[float] = deque(maxlen=WAYS)
        """How long it took, lately, until those that were to be handed out were through."""
        self._last_ways: deque[float] = deque(maxlen=WAYS)
        """And until those that were let go began."""
        self._appetite = Appetite()
        self.taken = 0
        """How many have been handed out."""
        self._arrived = 0
        self._misses = 0
        self._missed_at = -math.inf

    def __len__(self) -> int:
        return len(self._ready) + len(self._timed) + self.spares

    @property
    def ready(self) -> int:
        """How many were ready to run when last asked for."""
        return len(self._ready)

    @property
    def timed(self) -> int:
        """How many wait for their time."""
        return len(self._timed)

    def put(self, lease: Lease, sent: float, answered: float, *, has_room: bool = False) -> None:
        """Keep a lease that was sent for and came at these times; a spare that ``has_room`` need not wait."""
        self._arrived += 1
        if lease.pace:
            self._due[lease.token] = sent + lease.delay, self._arrived
            if lease.pace >= JUDGED_FROM:
                self._appetite.came()
        if lease.spare and not has_room:
            self._spares.setdefault(lease.slot, []).append(lease)
            self.spares += 1
            return
        at = answered + lease.delay
        if leeway_of(lease.pace):
            go = at - self._lead(lease.pace)
            at = go - self._head_start(lease.pace)
            self._plans[lease.token] = max(at, time.monotonic()), go
        if lease.delay <= SOON or at <= time.monotonic():
            heapq.heappush(self._ready, (lease.rank, self._arrived, lease))
        else:
            heapq.heappush(self._timed, (at, self._arrived, lease))

    def _head_start(self, pace: float) -> float:
        """What its way through Scrapy will probably take."""
        if len(self._ways) < WAYS:
            return 0.0
        return min(HEAD_START * pace, HEAD_START, sorted(self._ways)[WAYS * 3 // 4])

    def _lead(self, pace: float) -> float:
        """What its way to the site will surely take from where it is let go."""
        if len(self._last_ways) < WAYS:
            return 0.0
        return min(EARLY * pace, 0.8 * min(self._last_ways))

    def ripen(self) -> float | None:
        """Leases whose time has come may run; when the next one may (``time.monotonic``)."""
        if not self._timed:
            return None
        now = time.monotonic() + SOON
        while self._timed and self._timed[0][0] <= now:
            _, arrived, lease = heapq.heappop(self._timed)
            heapq.heappush(self._ready, (lease.rank, arrived, lease))
        return self._timed[0][0] if self._timed else None

    def take(self) -> Lease | None:
        """The best one of those that may run now."""
        self.ripen()
        if not self._ready:
            return None
        self.taken += 1
        return heapq.heappop(self._ready)[2]

    @property
    def paced(self) -> bool:
        """Whether some have their times."""
        return bool(self._due)

    def promote(self, slot: str) -> Lease | None:
        """A download of the slot has ended: the spare that may run in its room."""
        spares = self._spares.get(slot)
        if not spares:
            return None
        lease = spares.pop(0)
        self.spares -= 1
        self._arrived += 1
        heapq.heappush(self._ready, (lease.rank, self._arrived, lease))
        return lease

    # Being late

    def limit(self, wanted: int) -> int:
        """How many leases to ask for, where so many are wanted: no more than can start in time."""
        return self._appetite.limit(wanted, self._paced_now)

    @property
    def sated(self) -> bool:
        """There are as many paced leases in hand as can start in time for now."""
        return self._appetite.is_sated(self._paced_now)

    @property
    def _paced_now(self) -> int:
        """How many paced leases may begin."""
        return max(0, len(self._due) - len(self._timed))

    def is_late(self, lease: Lease) -> bool:
        """Whether it is too late to run it now. Asked when it is handed to Scrapy and when it is sent."""
        if lease.token not in self._due:
            return False
        due, number = self._due[lease.token]
        due += WAY * leeway_of(lease.pace)
        judged = lease.pace >= JUDGED_FROM
        slack = SLACK * 2.0 ** min(max(0, self._misses - PATIENT), 20)
        if time.monotonic() <= due + slack * lease.pace:
            self._misses = 0
            if judged:
                self._appetite.kept()
            return False
        if judged:
            self._appetite.missed(number, self._arrived)
        if due > self._missed_at:  # those that were late together count once
            self._missed_at = time.monotonic()
            self._misses += 1
        return True

    def time_left(self, token: int) -> float:
        """How much too early it would be let go now, in seconds."""
        plan = self._plans.get(token)
        return max(0.0, plan[1] - time.monotonic()) if plan is not None else 0.0

    def let_go(self, token: int) -> float:
        """It is through Scrapy and about to be sent; for how long it has to wait for its time."""
        if token not in self._plans:
            return 0.0
        planned, go = self._plans.pop(token)
        now = time.monotonic()
        self._ways.append(now - planned)
        self._out[token] = max(now, go)
        return max(0.0, go - now)

    def begin(self, lease: Lease) -> Start | None:
        """Its download has begun; what the store must know of that."""
        due, _ = self._due.pop(lease.token, (0.0, 0))
        self._plans.pop(lease.token, None)
        out = self._out.pop(lease.token, None)
        if not due or not leeway_of(lease.pace):
            return None
        now = time.monotonic()
        if out is not None:
            self._last_ways.append(now - out)
        return Start(lease.token, max(0.0, now - due - FORGIVEN * lease.pace))

    def forget(self, token: int) -> None:
        """The lease has ended, or its download has."""
        self._due.pop(token, None)
        self._plans.pop(token, None)
        self._out.pop(token, None)

    # Giving back

    def behind(self, rank: int) -> list[Lease]:
        """Remove those that are not waiting for their time and rank behind."""
        return self._remove(lambda lease: lease.rank > rank, timed=False)

    def of_slot(self, slot: str) -> list[Lease]:
        """Remove those of a slot."""
        return self._remove(lambda lease: lease.slot == slot)

    def stranded(self, running: set[str]) -> list[Lease]:
        """Remove spares of slots in which nothing runs, or is about to, whose room they could take."""
        running |= {lease.slot for _, _, lease in [*self._ready, *self._timed]}
        return self._remove(lambda lease: lease.spare and lease.slot not in running, timed=False)

    def all(self) -> list[Lease]:
        """Remove all."""
        return self._remove(lambda lease: True)

    def clear(self) -> None:
        """All leases have gone to others."""
        self.all()
        self._due.clear()
        self._plans.clear()
        self._out.clear()

    def _remove(self, unwanted: Callable[[Lease], bool], *, timed: bool = True) -> list[Lease]:
        gone = [lease for _, _, lease in self._ready if unwanted(lease)]
        if gone:
            self._ready = [each for each in self._ready if not unwanted(each[2])]
            heapq.heapify(self._ready)
        if timed:
            gone += [lease for _, _, lease in self._timed if unwanted(lease)]
            self._timed = [each for each in self._timed if not unwanted(each[2])]
            heapq.heapify(self._timed)
        if self.spares:
            for slot, spares in self._spares.items():
                gone += filter(unwanted, spares)
                self._spares[slot] = [lease for lease in spares if not unwanted(lease)]
            self._spares = {slot: spares for slot, spares in self._spares.items() if spares}
            self.spares = sum(map(len, self._spares.values()))
        return gone
