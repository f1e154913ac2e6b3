"""``hosts``: how the hosts of a crawl are treated, why they wait, and until when."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

import msgspec

from scrapy_fleet.model import TASKS, Override, SlotView
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import count, duration, number, paint, plain, print_json, table

LONG = 60.0
"""Seconds from which on the time of day is said, too."""
DAY = 86_400.0


def hosts(place: Place, crawl: str | None, *, limit: int, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        snapshot = store.snapshot(limit)
    if as_json:
        slots = msgspec.to_builtins(snapshot.slots)
        print_json({"crawl": name, "hosts": slots, "host_count": snapshot.slot_count})
        return 0
    if not snapshot.slots:
        print(f"Crawl {plain(name)!r} has met no host yet.")
        return 0
    print(slots_table(snapshot.slots))
    if (more := snapshot.slot_count - len(snapshot.slots)) > 0:
        print(paint(f"and {count(more, 'host')} more; show them with --limit", "dim"))
    return 0


def slots_table(slots: Sequence[SlotView], *, indent: int = 0) -> str:
    """A line a host. What only few hosts have, why they wait and what was told of them, comes last."""
    head = ["host", ">waiting", ">leased", ">done", ">delay", ">concurrency", ">latency", ">next in"]
    rows = [
        [
            slot.name,
            number(slot.waiting),
            number(slot.leased),
            number(slot.done),
            duration(slot.delay) if slot.delay else "-",
            "-" if slot.name == TASKS else number(slot.concurrency),
            "-" if slot.latency is None else duration(slot.latency),
            _next_in(slot),
        ]
        for slot in slots
    ]
    for name, cells in (
        ("why", [reason_of(slot) for slot in slots]),
        ("told", [told(slot.override) for slot in slots]),
    ):
        if any(cells):
            head.append(name)
            for row, cell in zip(rows, cells, strict=True):
                row.append(cell or "-")
    return table(head, rows, indent=indent)


def _next_in(slot: SlotView) -> str:
    if is_blocked(slot):
        return "-"
    if slot.next_in:
        return duration(slot.next_in)
    return "now" if slot.waiting and slot.reason != "full" else "-"


def is_blocked(slot: SlotView) -> bool:
    return slot.override is not None and slot.override.blocked


def reason_of(slot: SlotView) -> str:
    """Why the host waits and, if it is for long, until when."""
    if not slot.reason or is_blocked(slot) or slot.next_in < LONG:
        return slot.reason
    return f"{slot.reason}, until {moment(slot.next_in)}"


def moment(seconds: float) -> str:
    """The time of day so many seconds from now, with its date if it is not soon."""
    shape = "%H:%M" if seconds < DAY / 2 else "%Y-%m-%d %H:%M"
    return time.strftime(shape, time.localtime(time.time() + seconds))


def told(override: Override | None) -> str:
    """What people told the fleet about a host, in a few words."""
    if override is None:
        return ""
    parts = ["blocked"] if override.blocked else []
    if override.delay is not None:
        parts.append(f"delay {duration(override.delay)}" if override.delay else "no delay")
    if override.concurrency is not None:
        parts.append(f"concurrency {number(override.concurrency)}")
    if override.boost:
        parts.append(f"boost {override.boost:+,d}")
    return ", ".join(parts)
