"""Items: reading them, and handing them to groups of consumers."""

from __future__ import annotations

import secrets
from typing import Any

from scrapy_fleet.model import ItemGroup
from scrapy_fleet.store.base import MAX_ITEMS
from scrapy_fleet.store.redis.packing import raw, text


class ItemVerbs:
    """The part of the contract that is about items."""

    def _run(self, verb: str, *args: bytes | str | float) -> list[Any]:
        raise NotImplementedError

    def items(self, after: int = 0, limit: int = 100) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        while len(found) < limit:
            most = min(MAX_ITEMS, limit - len(found))
            some = _pairs(self._run("items", after, most)[0])
            found += some
            if len(some) < most:
                break
            after = found[-1][0]
        return found

    def take_items(
        self, group: str, consumer: str, limit: int = 100, ttl: float = 60.0
    ) -> list[tuple[int, bytes]]:
        most = min(limit, MAX_ITEMS)
        return _pairs(self._run("take_items", _new_id(), raw(group), raw(consumer), most, ttl)[0])

    def ack_items(self, group: str, numbers: tuple[int, ...]) -> int:
        acknowledged = 0
        for first in range(0, len(numbers), MAX_ITEMS):
            piece = numbers[first : first + MAX_ITEMS]
            acknowledged += self._run("item_groups", "ack", raw(group), *piece)[0]
        return acknowledged

    def item_groups(self) -> list[ItemGroup]:
        found = self._run("item_groups", "list")[0]
        return sorted((ItemGroup(text(name), left, taken) for name, left, taken in found), key=_name_of)

    def drop_item_group(self, group: str) -> bool:
        return bool(self._run("item_groups", "drop", raw(group))[0])

    def trim_items(self) -> int:
        removed = 0
        while some := self._run("item_groups", "trim", MAX_ITEMS)[0]:  # in pieces: no call takes long
            removed += some
        return removed


def _new_id() -> str:
    return f"i{secrets.token_hex(8)}"


def _name_of(group: ItemGroup) -> str:
    return group.name


def _pairs(flat: list[Any]) -> list[tuple[int, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
