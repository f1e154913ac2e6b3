"""How a crawl knows what it has met: the arithmetic that every store shares. (Filters: filters.py.)

**Exact** keeps every key. So does **off**, but with it nobody asks for requests to be filtered: they come
without keys, but for seeds, which are to be known when ``start()`` has to begin again.

**Bloom** keeps a few bits of each key. It is made of *layers*: the first has room for ``capacity`` keys, each
that follows for twice as many as the one before, and is begun when those before are full. How likely a layer
errs is bounded, by less from layer to layer, so that all together err no more than ``error``. The bits
of a key in a layer lie in one *block*, so that a store reads and writes one small piece for it. Blocks are
numbered through all layers. Which layers there are follows from the plan and the number of keys added.

**Rolling** keeps keys in *generations*, by when they were last met: one is begun for each ``GENERATIONS``-th
part of the window, a key that is met again goes over to the newest, and a generation is dropped, whole, when
the last of its keys was met longer ago than the window. With ``hot`` above 1 there are two lines of
generations: a key that is met again in a later one than its own goes over to the hot line, which is kept
for ``hot`` windows, in parts that are as much longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from struct import Struct as Layout
from typing import NamedTuple

from scrapy_fleet.errors import SeenDiffers
from scrapy_fleet.model import SeenPlan, SeenView

BLOCK_BYTES = 4032
"""Fits into a page of SQLite and into 4096 bytes of Redis, with what these put beside it."""
BLOCK_BITS = 8 * BLOCK_BYTES - 1
"""The last bit is never set."""
MAX_LAYERS = 20
GENERATIONS = 6
HASHES = 0.87
"""Of the hashes that would take the least room, how many there are: each costs time, and saves little."""
FIRST_SHARE = 0.75
"""Of the error, what the first layer may make; each that follows may make half of what is left."""

_words = Layout(">IIII").unpack_from


class Layer(NamedTuple):
    room: int
    """How many keys it is made for."""
    hashes: int
    blocks: int
    first: int
    """The number of its first block."""


def layers(plan: SeenPlan, count: int = MAX_LAYERS) -> list[Layer]:
    """The first layers of a Bloom filter."""
    made: list[Layer] = []
    first = 0
    left = plan.error
    for number in range(count):
        error = FIRST_SHARE * left if number == 0 else left / 2
        left -= error
        room = plan.capacity << number
        hashes = max(1, round(HASHES * -math.log2(error)))
        blocks = math.ceil(room * _bits_per_key(error, hashes) / BLOCK_BITS)
        made.append(Layer(room, hashes, blocks, first))
        first += blocks
    return made


def _bits_per_key(error: float, hashes: int) -> float:
    bits = -hashes / math.log(1 - error ** (1 / hashes))
    # Keys spread unevenly over the blocks, and those with more of them err more than those with less save.
    load = hashes / bits
    steep = load * hashes * math.exp(-load) / (1 - math.exp(-load))
    uneven = 1 + 0.5 * steep * max(0.0, steep - 1) * bits / BLOCK_BITS
    error /= uneven
    return -hashes / math.log(1 - error ** (1 / hashes))


def layer_count(plan: SeenPlan, count: int) -> int:
    """How many layers there are when so many keys were added and one more is to come."""
    number = 1
    while count >= plan.capacity * ((1 << number) - 1) and number < MAX_LAYERS:
        number += 1
    return number


def digest(key: int) -> bytes:
    """What a key is found by, 16 bytes: keys may be anything, this is evenly spread."""
    return sha1(b"%d" % key, usedforsecurity=False).digest()[:16]


def words(key: int) -> tuple[int, int, int, int]:
    """The same as four numbers of 32 bits."""
    found: tuple[int, int, int, int] = _words(digest(key))
    return found


def block_of(layer: Layer, where: tuple[int, int, int, int]) -> int:
    return layer.first + where[0] % layer.blocks


def positions(layer: Layer, where: tuple[int, int, int, int]) -> list[int]:
    """Which bits of its block a key has."""
    _, at, step, more = where
    found = []
    for _ in range(layer.hashes):
        found.append(at % BLOCK_BITS)
        at += step
        step += more
    return found


def is_set(block: bytes | bytearray, spots: Iterable[int]) -> bool:
    # As Redis numbers them: the first bit is the highest of the first byte.
    return all(block[spot >> 3] & (128 >> (spot & 7)) for spot in spots)


def set_bits(block: bytearray, spots: Iterable[int]) -> None:
    for spot in spots:
        block[spot >> 3] |= 128 >> (spot & 7)


def estimated_error(plan: SeenPlan, count: int) -> float:
    """How likely a new key is taken for a known one, when so many were added."""
    right, left = 1.0, count
    for layer in layers(plan, layer_count(plan, count)):
        inside = min(left, layer.room)
        left -= inside
        filled = 1 - math.exp(-layer.hashes * inside / (layer.blocks * BLOCK_BITS))
        right *= 1 - filled**layer.hashes
    return 1 - right


def view_bloom(plan: SeenPlan, count: int, size: int | None) -> SeenView:
    there = layers(plan, layer_count(plan, count))
    room = sum(layer.room for layer in there)
    error = estimated_error(plan, count)
    return SeenView(plan, count, size, room=room, layers=len(there), error=error)


@dataclass(slots=True)
class Generation:
    """Keys that were last met at about the same time."""

    number: int
    began: float
    last: float
    """When one of its keys was last met."""
    hot: bool = False
    seen: int = 0

    def over(self, plan: SeenPlan, now: float) -> bool:
        return self.last + span(plan, hot=self.hot) < now

    def current(self, plan: SeenPlan, now: float) -> bool:
        return now < self.began + span(plan, hot=self.hot) / GENERATIONS


def span(plan: SeenPlan, *, hot: bool) -> float:
    return plan.window * plan.hot if hot else plan.window


def newest(generations: Sequence[Generation], plan: SeenPlan, now: float, *, hot: bool) -> Generation | None:
    """The generation of a line in which keys that are met now belong; None if a new one is to be begun."""
    line = [each for each in generations if each.hot == hot]
    return line[-1] if line and line[-1].current(plan, now) else None


def view_rolling(plan: SeenPlan, generations: Sequence[Generation], size: int | None, now: float) -> SeenView:
    count = sum(each.seen for each in generations)
    oldest = max((now - each.last for each in generations), default=None)
    return SeenView(plan, count, size, generations=len(generations), oldest=oldest)


def check(stored: SeenPlan, asked: SeenPlan, crawl: str) -> None:
    """Refuse to go on with another filter than the crawl has. (Times of a rolling one may change.)"""
    fixed = ("kind", "capacity", "error") if stored.kind == "bloom" else ("kind",)
    if all(getattr(stored, name) == getattr(asked, name) for name in fixed):
        return
    ways = [f'keep to it: FLEET_SEEN = "{stored.kind}"', f"begin anew: scrapy fleet clear {crawl}"]
    if stored.kind == "bloom":
        ways[0] += f", FLEET_SEEN_CAPACITY = {stored.capacity}, FLEET_SEEN_ERROR = {stored.error:g}"
    else:
        ways.insert(0, f"convert it: scrapy fleet seen {crawl} convert {asked.kind}")
    raise SeenDiffers(
        f"Crawl {crawl!r} knows what it has met by {describe(stored)}, but {describe(asked)} is asked for. "
        f"Either {', or '.join(ways)}."
    )


def early_memory(plan: SeenPlan) -> float:
    """For how many seconds a worker may remember what it met without telling the store."""
    return plan.window / 50 if plan.kind == "rolling" else math.inf


def describe(plan: SeenPlan) -> str:
    if plan.kind == "bloom":
        return f"a bloom filter (capacity {plan.capacity:,}, error {plan.error:g})"
    return {"exact": "an exact filter", "rolling": "a rolling filter", "off": "no filter (off)"}[plan.kind]
