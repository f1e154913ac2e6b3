"""When a worker commits, and when it asks for more.

A worker that has enough to do sends few, full batches; one that starves sends what it has at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scrapy_fleet.ahead import SOON, Ahead
from scrapy_fleet.model import Batch, Receipt
from scrapy_fleet.outbox import Outbox
from scrapy_fleet.ports import Limits

POLL_FIRST, POLL_LAST, POLL_IDLE = 0.01, 0.25, 5.0
"""How soon an idle worker asks again: at first, at last, and at last where nothing waits in the whole
crawl: then its beats tell it when something does."""
POLL_STOCKED = 0.1
"""How soon a worker asks again that has many leases whose time will come: hosts are handed out a second
ahead, and full commits cost less."""
HEED = 0.5
"""How often a worker that holds leases ahead hears, at the least, whether they may still run."""
GATHER = 0.02
"""How long, at most, a worker that has little left to run waits for what comes of downloads that have just
ended: the end of a download and of its callback, in one commit, cost a store less than in two."""
GRACE = 0.005
"""How long the end of a download waits for what comes of it, where the order is strict."""


class Timing:
    """Decides from what is there; ``wake_in`` has it asked again after so many seconds."""

    def __init__(
        self, limits: Limits, outbox: Outbox, ahead: Ahead, wake_in: Callable[[float], None]
    ) -> None:
        self.hungry = False
        """There was nothing to run when it was last asked for."""
        self._asked_at = 0.0
        """When it last asked; 0 where that was too long ago."""
        self._sent_at = 0.0
        self._limits = limits
        self._outbox = outbox
        self._ahead = ahead
        self._wake_in = wake_in
        self._plenty = True
        self._early = False
        """The last answer brought nothing to run at once."""
        self._poll = POLL_FIRST
        self._patient_until = 0.0
        self._spares_left = 0
        self._ask_at: float | None = None
        """When to ask for more, since there is little left to run."""
        self._answered_at = 0.0
        self._taken_then = 0
        """How many leases had been taken when the last answer came."""
        self._trip = 0.0
        """How long the last answer took to come."""
        self._each = math.inf
        """How long a lease lasted, on average, between the last two answers."""

    def is_time(self, *, pending: bool, waiting: int, free: int, want: int) -> bool:
        """Whether to commit, and ask for ``want`` leases. What counts is whether anything has to be
        committed, how much waits in the whole crawl, and how many download slots are free here."""
        if pending:
            patient = self._outbox.only_starts or (self._outbox.only_samples and self._may_wait(waiting))
            idle = self._starves(free) and not patient
            if idle or self._outbox.size >= self._limits.commit_size:
                return True
            if self._outbox.age >= self._limits.commit_interval or not self._outbox:
                return True
        since = time.monotonic() - self._asked_at
        if len(self._ahead) and since >= HEED:
            return True
        if want == 0 or self._ahead.sated or (self._is_stocked() and since < POLL_STOCKED):
            return False
        if self.hungry:
            return since >= (POLL_LAST if self._has_spares(free) else self._poll)
        if not self.is_low:
            return False
        if self._ask_at is None:
            wait = self._gather()
            self._ask_at = time.monotonic() + wait
            self._wake_in(wait)
        return time.monotonic() >= self._ask_at

    @property
    def is_low(self) -> bool:
        """Whether to ask for more before the last lease is taken, as long as asking brought enough: there is
        little left, or it lasts no longer than this answer and the next one take to come."""
        left = self._ahead.ready + self._ahead.spares
        return self._plenty and (left <= self._limits.lookahead // 4 or left * self._each <= 2 * self._trip)

    def _gather(self) -> float:
        """Half of the time that what is left will last, if that is long enough."""
        taken = self._ahead.taken - self._taken_then
        many = 2 * taken > self._limits.lookahead
        each = (time.monotonic() - self._answered_at) / taken if many else self._each
        if self._ahead.paced or each == math.inf:
            return GATHER
        lasts = (self._ahead.ready + self._ahead.spares) * each
        return min(GATHER, 0.5 * lasts) if lasts > 2 * self._trip else 0.0

    def _starves(self, free: int) -> bool:
        """Nothing to run, and not only few download slots free: those can wait for others to come.
        As long as spares follow on what ends, there is time as well."""
        if not self.hungry or self._has_spares(free) or self._ahead.sated or self._is_stocked():
            return False
        few = free < self._limits.capacity // 8
        if few and time.monotonic() >= self._patient_until:
            self._patient_until = time.monotonic() + POLL_FIRST
            self._wake_in(POLL_FIRST)
        return not few

    def _is_stocked(self) -> bool:
        """It waits for the time of what it has, not for the store, which had nothing to run at once."""
        return self._early and 2 * self._ahead.timed >= self._limits.capacity + self._limits.lookahead

    def _has_spares(self, free: int) -> bool:
        """Whether enough is there that follows on what ends, and something is under way that will."""
        return self._ahead.spares > self._spares_left and free < self._limits.capacity

    def _may_wait(self, waiting: int) -> bool:
        """Whether the end of a download can wait for what comes of it: nothing else is there to be had,
        or the order is strict, and a redirect or a link that is next must be there before it is asked."""
        strict = self._limits.lookahead == 0 and self._outbox.age < GRACE
        if strict:
            self._wake_in(GRACE)
        return strict or waiting == 0

    # What happens

    def asked(self) -> None:
        self._asked_at = self._sent_at = time.monotonic()

    def starve(self) -> bool:
        """There is nothing to run; whether that is news."""
        news = not self.hungry
        if news:
            self.hungry, self._poll = True, POLL_FIRST
        return news

    def news(self) -> None:
        """There may be something to run now."""
        self._poll = POLL_FIRST

    def look(self) -> None:
        """Something was heard of that may be run: ask, once."""
        self._asked_at = 0.0
        self._wake_in(0)

    def resume(self) -> None:
        """After a pause: as in the beginning."""
        self.hungry, self._plenty, self._poll = False, True, POLL_FIRST

    def answered(self, batch: Batch, receipt: Receipt) -> None:
        """When to ask again, if there is nothing to run."""
        self._spares_left = self._ahead.spares // 2
        self._plenty = len(receipt.leases) == batch.want
        self._early = all(lease.delay > SOON for lease in receipt.leases)
        self._ask_at = None
        now, taken = time.monotonic(), self._ahead.taken - self._taken_then
        self._trip = now - self._sent_at
        self._each = (now - self._answered_at) / taken if taken else math.inf
        self._answered_at, self._taken_then = now, self._ahead.taken
        if receipt.leases:
            self.hungry, self._poll = False, POLL_FIRST
            return
        self._poll = min(2 * self._poll, POLL_LAST if receipt.counts.waiting else POLL_IDLE)
        if receipt.retry_in is not None:
            self._poll = min(self._poll, max(receipt.retry_in, SOON))
        if self.hungry:
            self._wake_in(self._poll)
