"""A crawl in pieces, as it is carried from one store to another, and into files.

Times are durations, seen from when the pieces were taken: stores have clocks of their own. What was seen is
not among them, see ``Store.seen_keys``.
"""

from __future__ import annotations

from msgspec import Struct, structs

from scrapy_fleet.errors import StoreError
from scrapy_fleet.model import Entry, Mode, Override
from scrapy_fleet.politeness import Manners


class NotEmpty(StoreError):
    """There is a crawl of this name already, with requests or workers in it. Name another, or clear it."""


class About(Struct, frozen=True, tag="about"):
    """The crawl itself. It comes first."""

    run: int
    mode: Mode
    seeded: bool
    finished: bool
    done: int
    last_id: int
    """The highest number that an entry has, or had."""
    stats: dict[str, float]
    state: dict[str, bytes]


class Told(Struct, frozen=True, tag="told"):
    """What people told about a slot."""

    slot: str
    override: Override


class Place(Struct, frozen=True, tag="slot"):
    """A slot. They come in the order in which it would be their turn, before what is in them."""

    name: str
    done: int
    latency: float | None
    served: bool
    next_in: float
    """Seconds until its delay is over; 0: it is."""
    manners: Manners
    """With times as durations: see :func:`from_now` and :func:`at`."""


class Kept(Struct, frozen=True, tag="entry"):
    """An entry that waits or is dead. Those of a slot come in the order in which they will be handed out."""

    id: int
    slot: str
    payload: bytes
    priority: int
    seed: bool
    ord: int
    """Its place among those of its slot and rank."""
    attempts: int = 0
    waited: float | None = None
    """For how many seconds it has waited to be run alone; None: it need not."""
    dead: str | None = None

    @property
    def entry(self) -> Entry:
        return Entry(self.slot, self.payload, self.priority, None, self.seed)


class Item(Struct, frozen=True, tag="item"):
    payload: bytes


class Document(Struct, frozen=True, tag="paper"):
    name: str
    data: bytes
    age: float


Piece = About | Told | Place | Kept | Item | Document


def from_now(manners: Manners, now: float) -> Manners:
    """With durations in place of times."""
    held = max(0.0, manners.held_until - now)
    failing = now - manners.failing_since if manners.failures else 0.0
    return structs.replace(manners, held_until=held, failing_since=failing)


def at(manners: Manners, now: float) -> Manners:
    """With times in place of durations."""
    held = now + manners.held_until if manners.held_until else 0.0
    failing = now - manners.failing_since if manners.failures else 0.0
    return structs.replace(manners, held_until=held, failing_since=failing)
