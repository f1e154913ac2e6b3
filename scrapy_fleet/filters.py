"""Keys that were met, in the memory of this process: each kind of filter as :mod:`scrapy_fleet.seen` says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scrapy_fleet.errors import NoKeys
from scrapy_fleet.model import SeenPlan, SeenView
from scrapy_fleet.seen import (
    BLOCK_BYTES,
    MAX_LAYERS,
    Generation,
    Layer,
    block_of,
    is_set,
    layer_count,
    layers,
    newest,
    positions,
    set_bits,
    view_bloom,
    view_rolling,
    words,
)


class Filter(Protocol):
    """Keys that were met, in the memory of this process."""

    def add(self, key: int, now: float = 0.0) -> bool:
        """Whether the key is new; it is known from now on."""

    def __contains__(self, key: int) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def forget(self, key: int) -> bool:
        """Whether it was there."""

    def view(self, now: float) -> SeenView: ...


class Exact:
    def __init__(self, plan: SeenPlan) -> None:
        self._plan = plan
        self._keys: set[int] = set()

    def add(self, key: int, now: float = 0.0) -> bool:
        before = len(self._keys)
        self._keys.add(key)
        return len(self._keys) > before

    def __contains__(self, key: int) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def forget(self, key: int) -> bool:
        before = len(self._keys)
        self._keys.discard(key)
        return len(self._keys) < before

    def view(self, now: float) -> SeenView:
        return SeenView(self._plan, len(self))


class Bloom:
    """``blocks`` are those that have bits, by their numbers; with those of a store it goes on from there."""

    def __init__(self, plan: SeenPlan, count: int = 0, blocks: dict[int, bytearray] | None = None) -> None:
        self._plan = plan
        self.count = count
        self.blocks: dict[int, bytearray] = {} if blocks is None else blocks
        self.changed: set[int] = set()
        """The numbers of blocks to which bits were added."""
        self._layers: list[Layer] = []
        self._room = 0
        self._grow()

    def _grow(self) -> None:
        self._layers = layers(self._plan, layer_count(self._plan, self.count))
        full = len(self._layers) == MAX_LAYERS
        self._room = 1 << 80 if full else sum(layer.room for layer in self._layers)

    def add(self, key: int, now: float = 0.0) -> bool:
        return self.meet(words(key))

    def meet(self, where: tuple[int, int, int, int]) -> bool:
        """As :meth:`add`, by what :func:`~scrapy_fleet.seen.words` makes of a key."""
        if self.count >= self._room:
            self._grow()
        if self._known(where, self._layers[:-1]):
            return False
        layer = self._layers[-1]
        number = block_of(layer, where)
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = bytearray(BLOCK_BYTES)
        spots = positions(layer, where)
        if is_set(block, spots):
            return False
        set_bits(block, spots)
        self.changed.add(number)
        self.count += 1
        return True

    def merge(self, blocks: Iterable[tuple[int, bytes]], count: int) -> None:
        """Add blocks that were kept elsewhere, of a filter to which so many keys were added."""
        for number, bits in blocks:
            own = int.from_bytes(self.blocks.get(number, b""), "big")
            self.blocks[number] = bytearray((own | int.from_bytes(bits, "big")).to_bytes(BLOCK_BYTES, "big"))
        self.count = max(self.count, count)
        self._grow()

    def _known(self, where: tuple[int, int, int, int], among: Sequence[Layer]) -> bool:
        for layer in among:
            block = self.blocks.get(block_of(layer, where))
            if block is not None and is_set(block, positions(layer, where)):
                return True
        return False

    def __contains__(self, key: int) -> bool:
        return self._known(words(key), self._layers)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        raise NoKeys(NoKeys.__doc__)

    def forget(self, key: int) -> bool:
        raise NoKeys(NoKeys.__doc__)

    def view(self, now: float) -> SeenView:
        return view_bloom(self._plan, self.count, len(self.blocks) * BLOCK_BYTES)


@dataclass(slots=True)
class Rolling:
    plan: SeenPlan
    generations: list[Generation] = field(default_factory=list)
    _keys: dict[int, set[int]] = field(default_factory=dict)
    _last: int = 0

    def add(self, key: int, now: float = 0.0) -> bool:
        for old in [each for each in self.generations if each.over(self.plan, now)]:
            self.generations.remove(old)
            del self._keys[old.number]
        cold = newest(self.generations, self.plan, now, hot=False) or self._begin(now, hot=False)
        place = self._place(key)
        if place is None:
            self._enter(cold, key, now)
            return True
        if place is cold or place is newest(self.generations, self.plan, now, hot=True):
            place.last = now
            return False
        to = cold
        if self.plan.hot > 1:
            to = newest(self.generations, self.plan, now, hot=True) or self._begin(now, hot=True)
        self.forget(key)
        self._enter(to, key, now)
        return False

    def _begin(self, now: float, *, hot: bool) -> Generation:
        self._last += 1
        self.generations.append(Generation(self._last, now, now, hot))
        self._keys[self._last] = set()
        return self.generations[-1]

    def _enter(self, place: Generation, key: int, now: float) -> None:
        self._keys[place.number].add(key)
        place.seen += 1
        place.last = now

    def _place(self, key: int) -> Generation | None:
        return next((each for each in self.generations if key in self._keys[each.number]), None)

    def __contains__(self, key: int) -> bool:
        return self._place(key) is not None

    def __len__(self) -> int:
        return sum(each.seen for each in self.generations)

    def __iter__(self) -> Iterator[int]:
        for each in self.generations:
            yield from self._keys[each.number]

    def forget(self, key: int) -> bool:
        place = self._place(key)
        if place is None:
            return False
        self._keys[place.number].discard(key)
        place.seen -= 1
        return True

    def view(self, now: float) -> SeenView:
        return view_rolling(self.plan, self.generations, None, now)


def in_memory(plan: SeenPlan) -> Exact | Bloom | Rolling:
    """An empty filter of the kind that a plan asks for."""
    match plan.kind:
        case "bloom":
            return Bloom(plan)
        case "rolling":
            return Rolling(plan)
        case _:
            return Exact(plan)
