"""What holds a crawl back: the limit of a host, where it is not the number of workers."""

from __future__ import annotations

from msgspec import Struct

from scrapy_fleet.model import SlotView, Snapshot
from scrapy_fleet.ops.hosts import is_blocked, moment
from scrapy_fleet.ops.show import count, duration, number, plain


class Limit(Struct, frozen=True):
    """The host with most requests waiting for its limit, while most requests of the crawl wait for one."""

    host: str
    reason: str
    """As in its view."""
    delay: float
    concurrency: int
    waiting: int
    """Requests that wait for the limits of hosts."""
    hosts: int
    """How many hosts these are of."""
    says: str
    """The same for people, with what to change."""


def limit_of(snapshot: Snapshot) -> Limit | None:
    """The limit that holds a running crawl back, judged by the hosts in the snapshot."""
    if snapshot.status not in ("running", "seeding"):
        return None
    limited = [slot for slot in snapshot.slots if slot.waiting and is_limited(slot)]
    waiting = sum(slot.waiting for slot in limited)
    if 2 * waiting <= sum(slot.waiting for slot in snapshot.slots):
        return None
    first = max(limited, key=lambda slot: slot.waiting)
    return Limit(
        host=first.name,
        reason=first.reason,
        delay=first.delay,
        concurrency=first.concurrency,
        waiting=waiting,
        hosts=len(limited),
        says=_sentence(snapshot.crawl, first, len(limited) - 1),
    )


def is_limited(slot: SlotView) -> bool:
    """It waits, and more workers would not help. (What is given up does not wait: it ends as dead.)"""
    return bool(slot.reason) and not slot.reason.startswith("given up")


def may_be_limited(snapshot: Snapshot) -> bool:
    """A busy host has room for a moment, whenever a download ends: another look may tell more."""
    return any(
        slot.waiting and (slot.delay or slot.leased >= slot.concurrency) for slot in snapshot.slots[:1]
    )


def _sentence(crawl: str, slot: SlotView, others: int) -> str:
    also = f" (as do {count(others, 'other host')})" if others > 1 else " (as does 1 other host)" * others
    fact, change = _words(slot, f"{plain(crawl)} {plain(slot.name)}")
    return f"{plain(slot.name)} holds the crawl back, not the number of workers{also}: {fact}. {change}"


def _words(slot: SlotView, words: str) -> tuple[str, str]:
    """What the limit is, and what to change."""
    override = slot.override
    if is_blocked(slot):
        return "it is blocked", f"Let it go on: scrapy fleet unblock {words}"
    if slot.reason == "full":
        fact = f"it takes {count(slot.concurrency, 'request')} at a time, and so many are under way"
        if override is not None and override.concurrency is not None:
            return f"{fact}, as was told by throttle", f"Take it back: scrapy fleet throttle {words} --reset"
        more = f"scrapy fleet throttle {words} --concurrency {2 * max(1, slot.concurrency)}"
        return fact, f"If the site can take more: CONCURRENT_REQUESTS_PER_DOMAIN, or {more}"
    if slot.reason.startswith("delay"):
        fact = f"its requests keep a distance of {duration(slot.delay)}"
        if override is not None and override.delay is not None:
            return f"{fact}, as was told by throttle", f"Take it back: scrapy fleet throttle {words} --reset"
        now = f"scrapy fleet throttle {words} --delay {slot.delay / 2:.2g}"
        if "robots.txt" in slot.reason:
            return f"{fact}, as its robots.txt asks", f"If the site agrees to less: {now}"
        if "AutoThrottle" in slot.reason:
            return (
                f"{fact}, by AutoThrottle",
                f"If it can take more: AUTOTHROTTLE_TARGET_CONCURRENCY, or {now}",
            )
        return fact, f"If the site can take more: DOWNLOAD_DELAY, or {now}"
    fact = f"it is left alone for {duration(slot.next_in)} ({plain(slot.reason)})"
    return fact, f"It is asked again at {moment(slot.next_in)}."


def in_short(limit: Limit) -> str:
    """For a line that says much else."""
    rest = f" and {number(limit.hosts - 1)} more" if limit.hosts > 1 else ""
    return f"held back by {plain(limit.host)}{rest} ({plain(limit.reason)})"
