"""How many paced leases a worker takes at a time.

A paced lease has its time. A worker that takes more of them than it can start in time hands the late ones
back, and they were leased in vain. So it takes a few at first, more as long as they start in time, and half
as many when one was late: as TCP finds out how much a network carries.
"""

from __future__ import annotations

LEAST, FIRST, MOST = 8, 32, 1000
"""What it never goes below, begins with, and never goes above: what grew in calm weather must shrink soon."""
STEP = 8
"""By how many it grows, after the first that was late, while as many start in time as it takes."""


class Appetite:
    def __init__(self) -> None:
        self._size: float | None = None
        """None until the first paced lease: others are not limited."""
        self._grows_fast = True
        self._bounds = False
        """It kept the worker from asking for more when that was asked last. If not, it is not known whether
        more would start in time."""
        self._asked = 0
        """The leases that came before this one say nothing about the size."""

    def limit(self, wanted: int, in_hand: int) -> int:
        """How many leases to ask for, where so many are wanted and so many paced ones are in hand."""
        if self._size is None:
            return wanted
        room = max(0, int(self._size) - in_hand)
        self._bounds = room < wanted
        return min(wanted, room)

    def is_sated(self, in_hand: int) -> bool:
        """Half of what it takes at a time is still in hand: more can wait."""
        return self._size is not None and 2 * in_hand >= self._size

    def came(self) -> None:
        """A paced lease was taken."""
        if self._size is None:
            self._size = FIRST

    def kept(self) -> None:
        """One has started in time."""
        assert self._size is not None
        if self._bounds:
            self._size = min(MOST, self._size + (1 if self._grows_fast else STEP / self._size))

    def missed(self, number: int, newest: int) -> None:
        """One of this number was late; those that come after the newest will tell of the new size."""
        assert self._size is not None
        if number > self._asked:
            self._size, self._grows_fast, self._asked = max(LEAST, self._size / 2), False, newest
