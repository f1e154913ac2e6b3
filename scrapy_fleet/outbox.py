"""What came of the requests that ran, gathered until it is committed.

The one order that always holds: a request is settled in the same commit as its children or in a
later one. So all children go out before, or together with, all outcomes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from msgspec.structs import replace

from scrapy_fleet.model import Batch, Beside, Entry, Notice, Outcome, Sample, Start
from scrapy_fleet.politeness import REFUSALS

ADDS_PER_CALL = 250
"""Large batches are cut, so that no call holds the store for long."""
HEAVY = 400
"""A last piece with more than this, an outcome counted twice, is cut once more."""

Add = tuple[Entry, int | None]
"""An entry, and the lease it comes from, where that is known."""


class Outbox:
    """Children, outcomes, and what else goes out with a commit."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._adds: list[Add] = []
        self._beside: dict[int, list[tuple[float, Entry]]] = {}
        self._outcomes: list[Outcome] = []
        self._starts: list[Start] = []
        self._samples: list[Sample] = []
        self._rooms: dict[str, list[int] | None] = {}
        """By slot, which of these samples leave a room that a spare lease may still take over; None where the
        site has refused one."""
        self._notices: list[Notice] = []
        self._releases: list[int] = []
        self._items: list[bytes] = []
        self._written: list[Beside] = []
        self._marks: list[int] = []
        self._stats: dict[str, float] = {}
        self._state: dict[str, bytes | None] = {}
        self._sent: dict[int, list[Add]] = {}
        self._oldest: float | None = None

    def __bool__(self) -> bool:
        """Whether anything has to be committed; numbers and state go along when something else does."""
        return self._oldest is not None

    @property
    def size(self) -> int:
        return len(self._adds) + len(self._outcomes)

    @property
    def waiting_adds(self) -> int:
        return len(self._adds)

    @property
    def age(self) -> float:
        """Seconds that the oldest has waited."""
        return 0.0 if self._oldest is None else time.monotonic() - self._oldest

    @property
    def only_samples(self) -> bool:
        """Downloads have begun or ended, and nothing came of them yet."""
        return bool(self._samples or self._starts) and not (
            self._adds
            or self._beside
            or self._outcomes
            or self._releases
            or self._items
            or _has_pushes(self._written)
            or self._marks
            or self._notices
        )

    @property
    def only_starts(self) -> bool:
        return self.only_samples and not self._samples

    @property
    def best_rank(self) -> int | None:
        return min((entry.rank for entry, _ in self._adds), default=None)

    # Gathering

    def add(self, entry: Entry, parent: int | None) -> None:
        """An entry that no filter would recognise is committed together with its parent, if that ends
        soon: so a crash between the two does not queue it twice."""
        if entry.key is None and parent is not None:
            self._beside.setdefault(parent, []).append((time.monotonic(), entry))
        else:
            self._adds.append((entry, parent))
        self._note()

    def settle(self, outcome: Outcome) -> None:
        self._let_out(outcome.token)
        self._outcomes.append(outcome)
        self._note()

    def start(self, start: Start) -> None:
        self._starts.append(start)
        self._note()

    def sample(self, sample: Sample, slot: str) -> None:
        if sample.status in REFUSALS:
            self._rooms[slot] = None
        elif sample.then is None and (rooms := self._rooms.setdefault(slot, [])) is not None:
            rooms.append(len(self._samples))
        self._samples.append(sample)
        self._note()

    def take_room(self, slot: str, token: int) -> bool:
        """Have a spare run in the room of a download whose end is not committed yet, if there is any."""
        rooms = self._rooms.get(slot)
        if not rooms:
            return False
        at = rooms.pop()
        self._samples[at] = replace(self._samples[at], then=token)
        return True

    def notice(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._note()

    def release(self, token: int) -> None:
        self._releases.append(token)
        self._note()

    def keep(
        self,
        items: Iterable[bytes] = (),
        marks: Iterable[int] = (),
        stats: dict[str, float] | None = None,
        state: dict[str, bytes | None] | None = None,
        beside: Iterable[Beside] = (),
    ) -> None:
        self._items += items
        self._written += beside
        self._marks += marks
        for name, value in (stats or {}).items():
            self._stats[name] = self._stats.get(name, 0) + value
        self._state.update(state or {})
        if self._items or self._marks or _has_pushes(self._written):
            self._note()

    def _note(self) -> None:
        if self._oldest is None:
            self._oldest = time.monotonic()

    def _let_out(self, parent: int) -> None:
        for _, entry in self._beside.pop(parent, ()):
            self._adds.append((entry, parent))

    # Sending

    def pack(self, worker: str, seq: int, *, everything: bool) -> list[Batch]:
        """Empty it into batches. The last one carries the outcomes; children of parents that are still
        running may stay a little, unless ``everything`` is wanted."""
        old = time.monotonic() - self._patience
        for parent, children in list(self._beside.items()):
            if everything or children[0][0] <= old:
                self._let_out(parent)
        adds = self._adds
        if len(adds) > ADDS_PER_CALL:
            # What no filter would recognise belongs as close to its parent's outcome as can be.
            adds = sorted(adds, key=lambda add: add[0].key is None)
        pieces = [adds[i : i + ADDS_PER_CALL] for i in range(0, len(adds), ADDS_PER_CALL)] or [[]]
        keyed = [add for add in pieces[-1] if add[0].key is not None]
        if keyed and len(pieces[-1]) + 2 * len(self._outcomes) > HEAVY:
            pieces[-1:] = [keyed, [add for add in pieces[-1] if add[0].key is None]]
        self._sent = {seq + i: piece for i, piece in enumerate(pieces)}
        batches = [
            Batch(worker=worker, seq=number, adds=tuple(entry for entry, _ in piece))
            for number, piece in self._sent.items()
        ]
        batches[-1] = replace(
            batches[-1],
            starts=tuple(self._starts),
            samples=tuple(self._samples),
            notices=tuple(self._notices),
            outcomes=tuple(self._outcomes),
            releases=tuple(self._releases),
            items=tuple(self._items),
            beside=tuple(self._written),
            marks=tuple(self._marks),
            stats=self._stats,
            state=self._state,
        )
        self._adds, self._samples, self._outcomes, self._releases = [], [], [], []
        self._items, self._marks, self._stats, self._state, self._notices = [], [], {}, {}, []
        self._written, self._starts, self._rooms = [], [], {}
        self._oldest = time.monotonic() if self._beside else None
        return batches

    def take_back(self, batches: list[Batch]) -> None:
        """The worker was given up before these were committed, and all its leases have gone to others.

        What was found stays: if it was stored, it is recognised. What would not be recognised comes
        again with its parent, as do the outcomes and their items.
        """
        adds = [add for batch in batches for add in self._sent.get(batch.seq, ())] + self._adds
        self._adds = [(entry, None) for entry, parent in adds if entry.key is not None or parent is None]
        self._beside, self._outcomes, self._samples, self._releases, self._starts = {}, [], [], [], []
        self._rooms = {}
        self._notices = [notice for batch in batches for notice in batch.notices] + self._notices
        for batch in batches:
            newer = self._state
            self._state = {}
            self.keep(batch.items, batch.marks, batch.stats, {**batch.state, **newer}, batch.beside)
        some = self._adds or self._items or self._marks or self._notices or _has_pushes(self._written)
        self._oldest = time.monotonic() if some else None


def _has_pushes(beside: Iterable[Beside]) -> bool:
    """Numbers, as those of the crawl, go along when something else does."""
    return any(each.do == "push" for each in beside)
