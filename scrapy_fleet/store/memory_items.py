"""Items that a store in memory keeps, and who consumes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from scrapy_fleet.model import ItemGroup
from scrapy_fleet.store.base import MAX_ITEMS


@dataclass(slots=True, eq=False)
class Consuming:
    """A group of consumers."""

    last: int = 0  # the last item that was given to any of them
    taken: dict[int, tuple[str, float]] = field(default_factory=dict)  # who has an item, since when


class Items:
    """Numbered from 1; those at the beginning may have been removed."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.total = 0
        self.kept: dict[int, bytes] = {}
        self.groups: dict[str, Consuming] = {}

    def extend(self, items: Iterable[bytes]) -> None:
        for item in items:
            self.total += 1
            self.kept[self.total] = item


class ItemVerbs:
    """The part of the contract that is about items."""

    _items: Items
    _clock: Callable[[], float]

    def items(self, after: int = 0, limit: int = 100) -> list[tuple[int, bytes]]:
        return [pair for pair in self._items.kept.items() if pair[0] > after][:limit]

    def take_items(
        self, group: str, consumer: str, limit: int = 100, ttl: float = 60.0
    ) -> list[tuple[int, bytes]]:
        now, limit = self._clock(), min(limit, MAX_ITEMS)
        consuming = self._items.groups.setdefault(group, Consuming())
        again = [
            number
            for number, (owner, at) in sorted(consuming.taken.items())
            if owner == consumer or now - at >= ttl
        ]
        new = [number for number in self._items.kept if number > consuming.last]
        chosen = [*again, *new][:limit]
        for number in chosen:
            consuming.taken[number] = (consumer, now)
            consuming.last = max(consuming.last, number)
        return [(number, self._items.kept[number]) for number in chosen]

    def ack_items(self, group: str, numbers: tuple[int, ...]) -> int:
        consuming = self._items.groups.get(group, Consuming())
        return sum(consuming.taken.pop(number, None) is not None for number in numbers)

    def item_groups(self) -> list[ItemGroup]:
        return [
            ItemGroup(name, sum(number > group.last for number in self._items.kept), len(group.taken))
            for name, group in sorted(self._items.groups.items())
        ]

    def drop_item_group(self, group: str) -> bool:
        return self._items.groups.pop(group, None) is not None

    def trim_items(self) -> int:
        groups = self._items.groups.values()
        done = min((min(group.taken, default=group.last + 1) - 1 for group in groups), default=0)
        gone = [number for number in self._items.kept if number <= done]
        for number in gone:
            del self._items.kept[number]
        return len(gone)
