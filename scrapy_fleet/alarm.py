"""One timer for many times."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from scrapy_fleet.ports import Loop

EARLY = 0.0005
"""Timers of a loop may be so many seconds early."""


class Alarm:
    """Rings when the first of those that wait may run, and again when the next one may: one timer for a busy
    loop to see to, however many wait."""

    def __init__(self, loop: Loop, next_at: Callable[[], float | None], ring: Callable[[], None]) -> None:
        self._loop = loop
        self._next_at = next_at
        self._ring = ring
        self._at = math.inf

    def set(self) -> None:
        """The next one may have changed; its time is one of ``time.monotonic``."""
        at = self._next_at()
        if at is not None and at < self._at:
            self._at = at
            self._loop.later(max(0.0, at - time.monotonic()), self._look)

    def _look(self) -> None:
        if time.monotonic() + EARLY < self._at:
            return  # it was set to an earlier time, and has rung
        self._at = math.inf
        self.set()
        self._ring()
