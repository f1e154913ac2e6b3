"""Taking a crawl from a server, and putting one there, piece by piece: no call holds the server for long."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from scrapy_fleet.cargo import About, Document, Item, Kept, Piece, Place, Told, at, from_now
from scrapy_fleet.model import Mode
from scrapy_fleet.politeness import Manners
from scrapy_fleet.store.redis import packing
from scrapy_fleet.store.redis.packing import text

AT_ONCE = 500
BYTES_AT_ONCE = 1 << 20
NEVER = 0.0

_numbers = struct.Struct("<dddddd").unpack
_slot = struct.Struct("<Bddd").pack
_manners = struct.Struct("<ddddIIBH").pack
_entry = struct.Struct("<HdHd").pack
_dead = struct.Struct("<ddH").pack

_double = struct.Struct("<d").pack

Run = Callable[..., list[Any]]
Command = Callable[..., Any]


def _name(name: str) -> bytes:
    data = packing.raw(name)
    return struct.pack("<H", len(data)) + data


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _named(name: str, data: bytes) -> bytes:
    return _name(name) + _sized(data)


class _Found(msgspec.Struct):
    turn: float
    queued: int
    piece: Place


def dump(run: Run, command: Command, prefix: str, modes: tuple[Mode, ...]) -> Iterator[Piece]:
    told, number, mode, seeded, finished, done, last, stats, state = run("dump", "about")
    now = float(told)
    yield About(
        run=number,
        mode=modes[mode],
        seeded=bool(seeded),
        finished=bool(finished),
        done=done,
        last_id=last,
        stats={text(name): float(value) for name, value in _pairs(stats)},
        state={text(name): value for name, value in _pairs(state)},
    )
    for name, packed in _pairs(command("HGETALL", f"{prefix}overrides")):
        if (override := packing.read_override(packed)) is not None:
            yield Told(text(name), override)
    slots = sorted(_slots(run, now), key=lambda found: found.turn)
    yield from (found.piece for found in slots)
    for found in slots:
        yield from _waiting(run, command, prefix, found, now)
    after = 0
    while rows := list(packing.fields_of_rows(run("scan", "dead", "", after, AT_ONCE)[0])):
        for ord, rank, attempts, slot, _, reason, payload in rows:
            yield _kept(ord, rank, attempts, text(slot), payload, dead=text(reason))
        after = int(abs(rows[-1][0]))
    yield from map(Item, _items(command, prefix))
    for name, packed in _hash(command, f"{prefix}papers"):
        yield Document(text(name), packed[8:], max(0.0, now - struct.unpack_from("<d", packed)[0]))


def _pairs(flat: Any) -> list[tuple[bytes, bytes]]:
    """A hash, however the client gives it."""
    if isinstance(flat, dict):
        return list(flat.items())
    return list(zip(flat[::2], flat[1::2], strict=True))


def _slots(run: Run, now: float) -> Iterator[_Found]:
    at_place = 0
    while found := run("dump", "slots", at_place, AT_ONCE)[0]:
        at_place += len(found)
        for name, packed, kept in found:
            turn, served, done, latency, next_at, queued = _numbers(packed)
            yield _Found(
                turn,
                int(queued),
                Place(
                    name=text(name),
                    done=int(done),
                    latency=latency if latency >= 0 else None,
                    served=bool(served),
                    next_in=max(0.0, next_at - now),
                    manners=from_now(packing.read_manners(kept), now),
                ),
            )


def _waiting(run: Run, command: Command, prefix: str, found: _Found, now: float) -> Iterator[Kept]:
    """Ordinary entries, then those that must run alone."""
    slot, number = found.piece.name, 0
    alone: list[Any] = []
    while rows := list(packing.fields_of_rows(run("scan", "waiting", slot, number, AT_ONCE)[0])):
        for ord, rank, attempts, _, _, _, payload in rows:
            waited = None
            if number >= found.queued:
                alone = alone or command("ZRANGE", f"{prefix}suspects:{slot}", 0, -1, "WITHSCORES")
                waited = max(0.0, now - _score(alone, number - found.queued))
            yield _kept(ord, rank, attempts, slot, payload, waited=waited)
            number += 1


def _score(found: list[Any], position: int) -> float:
    """Servers give members with their scores in pairs, or one after the other."""
    pair = found[position]
    return float(pair[1] if isinstance(pair, list | tuple) else found[2 * position + 1])


def _kept(
    ord: float,
    rank: float,
    attempts: int,
    slot: str,
    payload: bytes,
    *,
    waited: float | None = None,
    dead: str | None = None,
) -> Kept:
    priority, seed = packing.importance(rank)
    whole = int(ord)
    return Kept(abs(whole), slot, payload, priority, seed, whole, attempts, waited, dead)


def _items(command: Command, prefix: str) -> Iterator[bytes]:
    first = 0
    while found := command("LRANGE", f"{prefix}items", first, first + AT_ONCE - 1):
        yield from found
        first += len(found)


def _hash(command: Command, key: str) -> Iterator[tuple[bytes, bytes]]:
    cursor: Any = 0
    met: set[bytes] = set()
    while True:
        cursor, found = command("HSCAN", key, cursor, "COUNT", AT_ONCE)
        for name, value in _pairs(found):
            if name not in met:
                met.add(name)
                yield name, value
        if int(cursor) == 0:
            return


class Loading:
    """Gathers pieces, and sends them when there are enough."""

    def __init__(self, run: Run, modes: tuple[Mode, ...], new_id: str, now: float) -> None:
        self._run = run
        self._modes = modes
        self._new_id = new_id
        self._now = now
        self._stage = "begin"
        self._about: About | None = None
        self._empty()

    def _empty(self) -> None:
        self._groups: dict[tuple[int, str], int] = {}
        self._parts: dict[str, list[bytes]] = {
            name: [] for name in ("slots", "entries", "dead", "overrides", "papers", "items")
        }
        self._count = self._size = 0

    def load(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._put(piece)
            if self._count >= AT_ONCE or self._size >= BYTES_AT_ONCE:
                self._send(self._stage)
        about = self._about
        assert about is not None
        if self._stage == "begin":
            self._send("begin")
        numbers = (about.run, self._modes.index(about.mode), int(about.seeded), int(about.finished))
        stats, state = packing.stats(about.stats), packing.state({**about.state})
        self._send("end", stats, state, *numbers, about.done, about.last_id)

    def _send(self, stage: str, stats: bytes = b"", state: bytes = b"", *numbers: float) -> None:
        groups = b"".join(_double(rank) + _name(slot) for rank, slot in self._groups)
        parts = {name: b"".join(found) for name, found in self._parts.items()}
        self._run(
            "load",
            *(self._new_id, stage, parts["slots"], groups, parts["entries"], parts["dead"]),
            *(parts["overrides"], parts["papers"], parts["items"], stats, state, *numbers),
        )
        self._stage = "go on"
        self._empty()

    def _add(self, name: str, part: bytes) -> None:
        self._parts[name].append(part)
        self._count += 1
        self._size += len(part)

    def _put(self, piece: Piece) -> None:
        now = self._now
        match piece:
            case About():
                self._about = piece
            case Told():
                self._add("overrides", _named(piece.slot, packing.override(piece.override)))
            case Place():
                latency = -1.0 if piece.latency is None else piece.latency
                next_at = now + piece.next_in if piece.next_in else NEVER
                head = _name(piece.name) + _slot(piece.served, piece.done, latency, next_at)
                self._add("slots", head + _sized(_write(at(piece.manners, now))))
            case Kept(dead=None):
                group = self._groups.setdefault((piece.entry.rank, piece.slot), len(self._groups))
                since = -1.0 if piece.waited is None else max(0.0, now - piece.waited)
                head = _entry(group, piece.ord, piece.attempts, since)
                self._add("entries", head + _sized(piece.payload))
            case Kept():
                head = _name(piece.slot) + _dead(piece.entry.rank, piece.ord, piece.attempts)
                reason = _sized(packing.raw(piece.dead or ""))
                self._add("dead", head + reason + _sized(piece.payload))
            case Item():
                self._add("items", _sized(piece.payload))
            case Document():
                written = struct.pack("<d", now - piece.age)
                self._add("papers", _named(piece.name, written + piece.data))


def _write(manners: Manners) -> bytes:
    if manners == Manners():
        return b""
    reason = packing.raw(manners.reason)
    return (
        _manners(
            *(-1.0 if manners.auto is None else manners.auto, manners.robots, manners.held_until),
            *(manners.failing_since, manners.holds, manners.failures, manners.lost, len(reason)),
        )
        + reason
    )
