"""Taking a crawl out of memory, and putting one in."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from scrapy_fleet.cargo import About, Document, Item, Kept, NotEmpty, Piece, Place, Told, at, from_now
from scrapy_fleet.store import memory_papers
from scrapy_fleet.store import memory_records as records

if TYPE_CHECKING:
    from scrapy_fleet.store.memory import MemoryStore


def dump(store: MemoryStore) -> Iterator[Piece]:
    now = store._clock()
    kept = [*store._waiting.values(), *store._dead.values()]
    yield About(
        run=store._run,
        mode=store._mode,
        seeded=store._seeded,
        finished=store._finished,
        done=store._done,
        last_id=max((each.id for each in kept), default=0),
        stats=dict(store._stats),
        state=dict(store._state),
    )
    yield from itertools.starmap(Told, store._overrides.items())
    slots = sorted(store._slots.values(), key=lambda slot: (slot.served, slot.number))
    for slot in slots:
        next_in, manners = max(0.0, slot.next_at - now), from_now(slot.manners, now)
        yield Place(slot.name, slot.done, slot.latency, slot.served > 0, next_in, manners)
    for slot in slots:
        yield from (_piece(each) for _, _, each in sorted(slot.ordinary))
        suspects = sorted(slot.suspects.values(), key=lambda each: (each.since, each.id))
        yield from (_piece(each, waited=now - each.since) for each in suspects)
    yield from map(_piece, sorted(store._dead.values(), key=lambda each: each.id))
    yield from map(Item, store._items.kept.values())
    for name, paper in store._papers.items():
        if paper.data is not None:
            yield Document(name, paper.data, now - paper.written)


def _piece(kept: records.Kept, waited: float | None = None) -> Kept:
    entry = kept.entry
    return Kept(
        id=kept.id,
        slot=entry.slot,
        payload=entry.payload,
        priority=entry.priority,
        seed=entry.seed,
        ord=kept.ord,
        attempts=kept.attempts,
        waited=waited,
        dead=kept.reason,
    )


def load(store: MemoryStore, pieces: Iterable[Piece]) -> None:
    now = store._clock()
    if store._accepted or store._any_alive(now):
        raise NotEmpty(NotEmpty.__doc__)
    store._clear()
    turns = itertools.count(1)
    for piece in pieces:
        match piece:
            case About():
                about = piece
            case Told():
                store._overrides[piece.slot] = piece.override
            case Place():
                slot = store._meet(piece.name)
                slot.done, slot.latency = piece.done, piece.latency
                slot.served = next(turns) if piece.served else 0
                slot.next_at = now + piece.next_in if piece.next_in else 0.0
                slot.manners = at(piece.manners, now)
            case Kept():
                _put(store, piece, now)
            case Item():
                store._items.extend([piece.payload])
            case Document():
                store._papers[piece.name] = memory_papers.Document(piece.data, now - piece.age)
    store._leasing._turns = turns
    store._ids = itertools.count(about.last_id + 1)
    store._run, store._mode, store._joined_ever = about.run, about.mode, True
    store._seeded, store._finished, store._done = about.seeded, about.finished, about.done
    store._accepted += about.done
    store._stats, store._state = dict(about.stats), dict(about.state)


def _put(store: MemoryStore, piece: Kept, now: float) -> None:
    kept = records.Kept(piece.id, piece.entry, piece.ord, piece.attempts)
    store._accepted += 1
    slot = store._meet(piece.slot)
    if piece.dead is not None:
        store._die(kept, piece.dead)
        return
    store._waiting[kept.id] = kept
    if piece.waited is not None:
        kept.since = now - piece.waited
        slot.suspects[kept.id] = kept
    else:
        heapq.heappush(slot.ordinary, (kept.entry.rank, kept.ord, kept))
