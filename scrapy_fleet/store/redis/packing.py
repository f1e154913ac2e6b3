"""Batches, leases and rows as the scripts read and write them.

Lists travel as one packed argument each: commands of a few arguments cost client and server the least.
The layouts are those of Lua's ``struct.unpack`` in the scripts, without padding, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import starmap
from urllib.parse import quote

from scrapy_fleet import seen
from scrapy_fleet.errors import StoreError
from scrapy_fleet.model import (
    Auto,
    Backoff,
    Beside,
    Entry,
    Lease,
    Notice,
    Outcome,
    Override,
    Plan,
    Row,
    Sample,
    SeenKind,
    SeenPlan,
    Start,
)
from scrapy_fleet.politeness import Manners
from scrapy_fleet.store.base import MAX_WANT

_size = struct.Struct("<I").pack
_short = struct.Struct("<H").pack
_byte = struct.Struct("<B").pack
_double = struct.Struct("<d").pack
_hand = struct.Struct("<HHH")
_head = struct.Struct("<HBBddH")
_named = struct.Struct("<dH").pack
_IN_HAND = 1 << 16
"""Leases of one batch have tokens from this, times the batch's number, on."""
_ORD = 5
_WAITS = 2
"""In a lease: it waits for the room of another."""
_sample = struct.Struct("<dddHB").pack
_start = struct.Struct("<dd").pack
_policy = struct.Struct("<ddddddd")
_override = struct.Struct("<ddBd")
_manners = struct.Struct("<ddddIIBH")
_pace = struct.Struct("<dB")
_row = struct.Struct("<ddH")
_read_size = struct.Struct("<I")
_read_short = struct.Struct("<H")
_key_head = struct.Struct("<IB").pack
_NO_KEY = _key_head(0, 0)
_beside = struct.Struct("<HB").pack
_BESIDE = {"push": 0, "add": 1, "put": 2, "most": 3, "least": 4}
_DIGEST_HEAD = _key_head((1 << 32) - 1, 16)
_filter = struct.Struct("<Bdddd")
_layer = struct.Struct("<Bd").pack
_KINDS: tuple[SeenKind, ...] = ("exact", "bloom", "rolling", "off")


def prefix(crawl: str) -> str:
    """What all keys of a crawl begin with. Braces in its name would end the hash tag that keeps it on one
    node of a cluster."""
    return f"fleet:{{{quote(crawl, safe=' !#$&()*+,-./:;<=>?@[]^_|~', encoding='utf-8')}}}:"


def _name(name: str) -> bytes:
    data = raw(name)
    return _short(len(data)) + data


def _sized(data: bytes) -> bytes:
    return _size(len(data)) + data


def _key(key: int) -> bytes:
    """Its ending and its digits: see seen.lua."""
    digits = b"%d" % key
    return _key_head(abs(int(digits[-9:])), len(digits)) + digits


def _digest(key: int) -> bytes:
    """What bloom.lua makes of a key, made here: the server has enough to do."""
    return _DIGEST_HEAD + seen.digest(key)


def adds(entries: Iterable[Entry], *, bloom: bool = False) -> tuple[bytes, bytes]:
    """The groups (rank and slot) that entries fall into, and the entries."""
    pack_key = _digest if bloom else _key
    groups: dict[tuple[int, str], int] = {}
    parts: list[bytes] = []
    for entry in entries:
        group = groups.setdefault((entry.rank, entry.slot), len(groups))
        payload = entry.payload
        key = _NO_KEY if entry.key is None else pack_key(entry.key)
        parts += (_short(group), key, _size(len(payload)), payload)
    return b"".join(_double(rank) + _name(slot) for rank, slot in groups), b"".join(parts)


def marks(keys: Iterable[int], *, bloom: bool = False) -> bytes:
    return b"".join(map(_digest if bloom else _key, keys))


def samples(samples: Iterable[Sample]) -> bytes:
    parts: list[bytes] = []
    for sample in samples:
        latency = -1.0 if sample.latency is None else sample.latency
        then = -1 if sample.then is None else sample.then
        more = bool(sample.retry_after or sample.failed)
        parts.append(_sample(sample.token, then, latency, sample.status or 0, more))
        if more:
            parts += (_double(sample.retry_after or 0.0), _name(sample.failed))
    return b"".join(parts)


def starts(starts: Iterable[Start]) -> bytes:
    return b"".join(_start(start.token, start.late) for start in starts)


def notices(notices: Iterable[Notice]) -> bytes:
    return b"".join(
        _name(notice.slot)
        + _double(-1.0 if notice.distance is None else notice.distance)
        + _name(notice.failed)
        + _short(notice.status or 0)
        + _double(notice.retry_after or 0.0)
        for notice in notices
    )


class Besides:
    """What is written beside the crawl: the keys, what their values must be, and the writing itself."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}
        self.kinds = ""

    def pack(self, besides: Iterable[Beside]) -> bytes:
        parts: list[bytes] = []
        for beside in besides:
            kind = "l" if beside.do == "push" else "h"
            if beside.key not in self.keys:
                self.keys[beside.key] = len(self.keys)
                self.kinds += kind
            place = self.keys[beside.key]
            if self.kinds[place] != kind:
                raise StoreError(f"{beside.key!r} cannot be a list and a hash: give them different names.")
            # In the script the crawl's own key comes first, and lists begin with 1.
            parts += (_beside(place + 2, _BESIDE[beside.do]), _name(beside.field), _sized(beside.value))
        return b"".join(parts)


def outcomes(outcomes: Iterable[Outcome], besides: Besides) -> tuple[bytes, bytes]:
    """Leases that are done, with nothing more to be said (most are), and the other outcomes."""
    done: list[int] = []
    parts: list[bytes] = []
    settled: set[int] = set()
    for outcome in outcomes:
        token = outcome.token
        if token in settled:
            continue
        settled.add(token)
        more = (outcome.dead is not None) + 2 * bool(outcome.items) + 4 * bool(outcome.beside)
        if not more:
            done.append(token)
            continue
        parts += (_double(token), _byte(more))
        if outcome.dead is not None:
            parts.append(_sized(raw(outcome.dead)))
        if outcome.items:
            parts.append(_size(len(outcome.items)))
            parts += map(_sized, outcome.items)
        if outcome.beside:
            parts.append(_sized(besides.pack(outcome.beside)))
    return named(done), b"".join(parts)


def named(tokens: Iterable[int]) -> bytes:
    """The hands that leases are of, and their places in them: see holding.lua."""
    hands: dict[int, bytearray] = {}
    for token in tokens:
        place = token % _IN_HAND
        if place < MAX_WANT:  # or nobody can have it
            hands.setdefault(token - place, bytearray()).append(place)
    return b"".join(_named(hand, len(places)) + places for hand, places in hands.items())


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


def policy(plan: Plan) -> bytes:
    """What politeness.lua reads of a plan, besides its rules."""
    auto, backoff = plan.auto or Auto(), plan.backoff
    return _policy.pack(
        *(auto.start, auto.most, auto.target),
        *(backoff.first, backoff.most, backoff.failures, backoff.patience),
    )


def read_policy(has_auto: int, data: bytes) -> Plan:
    """A plan without its rules."""
    if not data:  # nobody has joined yet
        return Plan()
    start, most, target, first, longest, failures, patience = _policy.unpack(data)
    return Plan(
        auto=Auto(start, most, target) if has_auto else None,
        backoff=Backoff(first, longest, int(failures), patience),
    )


def seen_plan(plan: SeenPlan) -> bytes:
    """How keys are known, as seen.lua reads it."""
    head = _filter.pack(_KINDS.index(plan.kind), plan.capacity, plan.error, plan.window, plan.hot)
    layers = seen.layers(plan) if plan.kind == "bloom" else []
    return head + b"".join(_layer(layer.hashes, layer.blocks) for layer in layers)


def read_seen_plan(data: bytes) -> SeenPlan:
    kind, capacity, error, window, hot = _filter.unpack_from(data)
    return SeenPlan(_KINDS[kind], int(capacity), error, window, int(hot))


def override(override: Override | None) -> bytes:
    if override is None:
        return b""
    delay, concurrency = (-1 if value is None else value for value in (override.delay, override.concurrency))
    return _override.pack(delay, concurrency, override.blocked, override.boost)


def read_override(data: bytes) -> Override | None:
    if not data:
        return None
    delay, concurrency, blocked, boost = _override.unpack(data)
    return Override(
        None if delay < 0 else delay, None if concurrency < 0 else int(concurrency), bool(blocked), int(boost)
    )


def read_manners(data: bytes) -> Manners:
    if not data:
        return Manners()
    auto, robots, held_until, failing_since, holds, failures, lost, _ = _manners.unpack_from(data)
    return Manners(
        auto=None if auto < 0 else auto,
        robots=robots,
        held_until=held_until,
        reason=text(data[_manners.size :]),
        holds=holds,
        failures=failures,
        failing_since=failing_since,
        lost=bool(lost),
    )


def doubles(numbers: list[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def read_positions(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def read_terms(data: bytes) -> dict[str, tuple[float, bool, str]]:
    """Of slots: their pace, whether they are probed, and why they are given up."""
    terms: dict[str, tuple[float, bool, str]] = {}
    at = 0
    while at < len(data):
        name, at = _short_text(data, at)
        pace, probe = _pace.unpack_from(data, at)
        lost, at = _short_text(data, at + _pace.size)
        terms[name] = (pace, bool(probe), lost)
    return terms


def _short_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _read_short.unpack_from(data, at)
    at += _read_short.size
    return text(data[at : at + length]), at + length


def read_leases(seq: int, hand: bytes, raws: bytes, now: float, told: bytes) -> tuple[Lease, ...]:
    """What came with the batch of this number, as holding.lua has it."""
    if not hand:
        return ()
    terms, plain = read_terms(told), (0.0, False, "")
    count, _, head_count = _hand.unpack_from(hand)
    refs = _hand.size + count
    at = refs + count + 4 * head_count
    heads = []
    while at < len(hand):
        attempts, running, alone, run_at, rank, length = _head.unpack_from(hand, at)
        at += _head.size + length
        slot = text(hand[at - length : at])
        heads.append((slot, importance(rank), attempts, run_at - now, bool(alone), running == _WAITS))
    leases: list[Lease] = []
    at = 4 * count
    for place, size in enumerate(struct.unpack_from(f"<{count}I", raws)):
        slot, (priority, seed), attempts, delay, alone, spare = heads[hand[refs + place]]
        pace, probe, lost = terms.get(slot, plain)
        payload = raws[at + _ORD : at + size]
        at += size
        token = seq * _IN_HAND + place
        leases.append(
            Lease(token, slot, payload, priority, seed, attempts, delay, alone, pace, spare, probe, lost)
        )
    return tuple(leases)


def read_rows(data: bytes) -> list[Row]:
    return list(starmap(_row_of, fields_of_rows(data)))


def _row_of(
    ord: float, rank: float, attempts: int, slot: bytes, worker: bytes, reason: bytes, payload: bytes
) -> Row:
    priority, seed = importance(rank)
    id = abs(int(ord))
    return Row(id, text(slot), priority, seed, attempts, payload, text(worker) or None, text(reason) or None)


def fields_of_rows(data: bytes) -> Iterator[tuple[float, float, int, bytes, bytes, bytes, bytes]]:
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


def importance(rank: float) -> tuple[int, bool]:
    whole = int(rank)
    seed = whole & 1
    return (seed - whole) // 2, bool(seed)
