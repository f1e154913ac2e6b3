"""Whether a store looks as the store in memory does, to whoever looks into both."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from scrapy_fleet.model import Row, Snapshot
from scrapy_fleet.store.base import Store

from .driver import KINDS, adds_up

EVERYTHING = 10_000
KEYS = tuple(range(-1, 62))


def alike(left: Any, right: Any, where: str = "it") -> None:
    """Equal, but for what is each store's own: the numbers of entries, and the last bits of a float."""
    if left == right:
        return
    if isinstance(left, float) and isinstance(right, float | int):
        assert math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9), f"{where}: {left} != {right}"
    elif isinstance(left, msgspec.Struct):
        assert type(left) is type(right), f"{where}: {left} != {right}"
        for name in left.__struct_fields__:
            ours, theirs = getattr(left, name), getattr(right, name)
            if ours != theirs and (name != "id" or not isinstance(ours, int)):
                alike(ours, theirs, f"{where}.{name}")
    elif isinstance(left, tuple | list):
        assert len(left) == len(right), f"{where}: {left} != {right}"
        for n, pair in enumerate(zip(left, right, strict=True)):
            alike(*pair, f"{where}[{n}]")
    else:
        raise AssertionError(f"{where}: {left} != {right}")


def look_alike(memory: Store, store: Store) -> None:
    """What work changes all the time: counters, slots, workers, what waits in which order, who holds what."""
    snapshot = _snapshot(memory, store)
    counts = snapshot.counts
    waiting = sum(len(_waiting(memory, store, view.name)) for view in snapshot.slots if view.waiting)
    leased = len(_rows(memory, store, "leased")) if counts.leased else 0
    dead = len(_rows(memory, store, "dead")) if counts.dead else 0
    adds_up(snapshot, waiting, leased, dead)
    assert memory.seen(KEYS) == store.seen(KEYS)


def look_the_same(memory: Store, store: Store, slots: tuple[str, ...]) -> None:
    """All that can be looked at."""
    snapshot = _snapshot(memory, store)
    adds_up(snapshot, *(len(_rows(memory, store, kind)) for kind in KINDS))
    for slot in slots:
        _waiting(memory, store, slot)
        alike(memory.slot(slot), store.slot(slot), slot)
    alike(memory.slot("never met"), store.slot("never met"), "never met")
    assert memory.seen(KEYS) == store.seen(KEYS)
    views = (each.seen_info() for each in (memory, store))
    alike(*(msgspec.structs.replace(view, bytes=None) for view in views), "what is seen")
    alike(memory.items(limit=EVERYTHING), store.items(limit=EVERYTHING), "items")


def _snapshot(memory: Store, store: Store) -> Snapshot:
    snapshot = store.snapshot()
    alike(memory.snapshot(), snapshot)
    return snapshot


def _rows(memory: Store, store: Store, kind: Any) -> list[Row]:
    rows = store.scan(kind, limit=EVERYTHING)
    alike(memory.scan(kind, limit=EVERYTHING), rows, kind)
    return rows


def _waiting(memory: Store, store: Store, slot: str) -> list[Row]:
    rows = store.scan("waiting", slot=slot, limit=EVERYTHING)
    alike(memory.scan("waiting", slot=slot, limit=EVERYTHING), rows, f"order of {slot}")
    return rows
