"""Batches, leases and rows as the scripts read and write them.

Lists travel as one packed argument each: commands of a few arguments cost client and server the least.
The layouts are those of Lua's ``struct.unpack`` in the scripts, without padding, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import starmap
from urllib.parse import quote

from scrapy_fleet.model import Entry, Lease, Outcome, Plan, Row, Sample

_size = struct.Struct("<I").pack
_short = struct.Struct("<H").pack
_double = struct.Struct("<d").pack
_pair = struct.Struct("<dd").pack
_add = struct.Struct("<dB").pack
_place = struct.Struct("<II").pack
_lease = struct.Struct("<dIdHBBddH")
_head = struct.calcsize("<dI")
_row = struct.Struct("<ddH")
_read_size = struct.Struct("<I")
_read_short = struct.Struct("<H")


def prefix(crawl: str) -> str:
    """What all keys of a crawl begin with. Braces in its name would end the hash tag that keeps it on one
    node of a cluster."""
    return f"fleet:{{{quote(crawl, safe=' !#$&()*+,-./:;<=>?@[]^_|~', encoding='utf-8')}}}:"


def _name(name: str) -> bytes:
    data = name.encode("utf-8", "surrogatepass")
    return _short(len(data)) + data


def _sized(data: bytes) -> bytes:
    return _size(len(data)) + data


def _key(key: int) -> bytes:
    digits = b"%d" % key
    return _add(int(digits[-9:]), len(digits)) + digits


def adds(entries: Iterable[Entry]) -> tuple[bytes, bytes]:
    """The groups (rank and slot) that entries fall into, and the entries."""
    groups: dict[tuple[int, str], int] = {}
    parts: list[bytes] = []
    no_key = _add(0, 0)
    for entry in entries:
        group = groups.setdefault((entry.rank, entry.slot), len(groups))
        payload = entry.payload
        parts += (
            no_key if entry.key is None else _key(entry.key),
            _place(group, len(payload)),
            payload,
        )
    return b"".join(_double(rank) + _name(slot) for rank, slot in groups), b"".join(parts)


def marks(keys: Iterable[int]) -> bytes:
    return b"".join(map(_key, keys))


def samples(samples: Iterable[Sample]) -> bytes:
    return b"".join(
        _pair(sample.token, -1.0 if sample.latency is None else sample.latency) for sample in samples
    )


def outcomes(outcomes: Iterable[Outcome]) -> bytes:
    parts: list[bytes] = []
    for outcome in outcomes:
        reason = (outcome.dead or "").encode("utf-8", "surrogatepass")
        parts += (
            _double(outcome.token),
            b"\0" if outcome.dead is None else b"\1",
            _sized(reason),
            _size(len(outcome.items)),
        )
        parts += map(_sized, outcome.items)
    return b"".join(parts)


def tokens(tokens: Iterable[int]) -> bytes:
    return b"".join(map(_double, tokens))


def items(items: Iterable[bytes]) -> bytes:
    return b"".join(map(_sized, items))


def stats(stats: dict[str, float]) -> bytes:
    return b"".join(_name(name) + _double(value) for name, value in stats.items())


def state(state: dict[str, bytes | None]) -> bytes:
    return b"".join(
        _name(name) + (b"\0" if data is None else b"\1") + _sized(data or b"") for name, data in state.items()
    )


def rules(plan: Plan) -> bytes:
    return b"".join(
        _name(name) + struct.pack("<ddd", rule.concurrency, rule.delay, rule.jitter)
        for name, rule in plan.slots.items()
    )


def doubles(numbers: list[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def read_positions(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def read_leases(data: bytes, now: float) -> tuple[Lease, ...]:
    leases: list[Lease] = []
    names: dict[bytes, str] = {}
    at = 0
    while at < len(data):
        token, size, _, attempts, _, alone, run_at, rank, length = _lease.unpack_from(data, at)
        end = at + _head + size
        at += _lease.size
        name, payload = data[at : at + length], data[at + length : end]
        at = end
        if name not in names:
            names[name] = text(name)
        leases.append(
            Lease(
                int(token),
                names[name],
                payload,
                *_priority(rank),
                attempts,
                max(0.0, run_at - now),
                bool(alone),
            )
        )
    leases.sort(key=lambda lease: lease.token)
    return tuple(leases)


def read_rows(data: bytes) -> list[Row]:
    return list(starmap(_row_of, _rows(data)))


def _row_of(
    id: float, rank: float, attempts: int, slot: bytes, worker: bytes, reason: bytes, payload: bytes
) -> Row:
    priority, seed = _priority(rank)
    return Row(
        int(id), text(slot), priority, seed, attempts, payload, text(worker) or None, text(reason) or None
    )


def _rows(data: bytes) -> Iterator[tuple[float, float, int, bytes, bytes, bytes, bytes]]:
    at = 0
    while at < len(data):
        id, rank, attempts = _row.unpack_from(data, at)
        at += _row.size
        fields: list[bytes] = []
        for sized in (_read_short, _read_short, _read_size, _read_size):
            (length,) = sized.unpack_from(data, at)
            at += sized.size
            fields.append(data[at : at + length])
            at += length
        yield id, rank, attempts, fields[0], fields[1], fields[2], fields[3]


def _priority(rank: float) -> tuple[int, bool]:
    whole = int(rank)
    seed = whole & 1
    return (seed - whole) // 2, bool(seed)
