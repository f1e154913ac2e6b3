"""``throttle``, ``block``, ``unblock`` and ``boost``: what people tell the fleet about one host."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Override, SlotView
from scrapy_fleet.ops.hosts import told
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import count, duration, number, plain, print_json

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

MANY_HOSTS = 1000
"""Among how many hosts, the busiest first, one of a similar name is looked for."""
HOST_AS_TYPED = re.compile(r"(localhost|[^\s/:]+\.[^\s/:]+|\[[0-9a-fA-F:.]+\])(:\d+)?(/.*)?")
"""A host as people copy it: with a port, with a path."""

Change = Callable[[Override], Override]


def throttle(
    place: Place,
    crawl: str | None,
    host: str,
    *,
    delay: float | None,
    concurrency: int | None,
    reset: bool,
    as_json: bool,
) -> int:
    def change(old: Override) -> Override:
        if reset:
            return replace(old, delay=None, concurrency=None)
        return replace(
            old,
            delay=old.delay if delay is None else delay,
            concurrency=old.concurrency if concurrency is None else concurrency,
        )

    return _tell(place, crawl, host, change, as_json)


def block(place: Place, crawl: str | None, host: str, *, blocked: bool, as_json: bool) -> int:
    return _tell(place, crawl, host, lambda old: replace(old, blocked=blocked), as_json)


def boost(place: Place, crawl: str | None, host: str, *, by: int, as_json: bool) -> int:
    return _tell(place, crawl, host, lambda old: replace(old, boost=by), as_json)


def _tell(place: Place, crawl: str | None, host: str, change: Change, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        slot = slot_named(store, host)
        before = store.slot(slot)
        new = change((before and before.override) or Override())
        # Also if it is the same: a host that was given up gets a new chance.
        store.override(slot, None if new == Override() else new)
        after = store.slot(slot)
        met = _is_met(store, before)
        alike = [] if met or as_json else _alike(store, slot)
    if as_json:
        kept = None if new == Override() else msgspec.to_builtins(new)
        view = msgspec.to_builtins(after)
        print_json({"crawl": name, "host": slot, "met": met, "override": kept, "slot": view})
        return 0
    print(_what_holds(plain(slot), plain(name), new, after if met else None))
    for remark in _remarks(plain(name), new, before, met, alike):
        print(remark)
    return 0


# Which host


def slot_named(store: Store, text: str) -> str:
    """The slot that is meant: one that the crawl knows by this name, or the host in what was typed."""
    return text if store.slot(text) is not None else host_in(text)


def host_in(text: str) -> str:
    """The host of a URL, or of a host with port or path, as Scrapy names its slot; other names stay."""
    url = text.strip()
    if "://" not in url:
        if HOST_AS_TYPED.fullmatch(url) is None:
            if not url:
                raise FleetError("The name of the host is empty.")
            return url
        url = f"//{url}"
    try:
        host = urlsplit(url).hostname
        if host and not host.isascii():
            from w3lib.url import safe_url_string  # what Scrapy does with a URL

            host = urlsplit(safe_url_string(f"http://{host}/")).hostname
    except ValueError as error:
        raise FleetError(f"{text!r} is no URL: {error}.") from error
    if not host:
        raise FleetError(f"There is no host in {text!r}.")
    return host


def _is_met(store: Store, view: SlotView | None) -> bool:
    """A host can have been told about before the first of its requests came."""
    if view is None:
        return False
    return bool(view.waiting or view.leased or view.done or store.scan("dead", slot=view.name, limit=1))


def _alike(store: Store, name: str) -> list[str]:
    known = [slot.name for slot in store.snapshot(MANY_HOSTS).slots if slot.name != name]
    known = [other for other in known if other]
    bare = name.removeprefix("www.")
    related = [other for other in known if other == bare or other.endswith(f".{bare}")]
    return related[:3] or difflib.get_close_matches(name, known, n=3, cutoff=0.8)


# What is said


def _what_holds(host: str, crawl: str, override: Override, view: SlotView | None) -> str:
    who = f"{host} in crawl {crawl!r}"
    if override.blocked:
        rest = told(replace(override, blocked=False))
        also = f" (Also told: {rest}.)" if rest else ""
        return f"{who} is blocked: none of its requests run. Let them go on: unblock {crawl} {host}{also}"
    if view is None:
        return f"{who}: {told(override) or 'as the settings say'}."
    delay = "told" if override.delay is not None else _why_delay(view)
    concurrency = "told" if override.concurrency is not None else "by the settings"
    parts = [
        f"delay {duration(view.delay) if view.delay else 'none'} ({delay})",
        f"concurrency {number(view.concurrency)} ({concurrency})",
    ]
    if override.boost:
        parts.append(f"boost {override.boost:+,d} (told)")
    return f"{who} now: {', '.join(parts)}."


def _why_delay(view: SlotView) -> str:
    if view.robots and view.robots == view.delay:
        return "by its robots.txt"
    return "by AutoThrottle" if "AutoThrottle" in view.reason else "by the settings"


def _remarks(
    crawl: str, override: Override, before: SlotView | None, met: bool, alike: list[str]
) -> list[str]:
    remarks = []
    if not met:
        remarks.append("The crawl has not met this host yet: it will hold when it comes.")
        if alike:
            remarks.append(f"It has met: {', '.join(map(plain, alike))}")
    elif before is not None:
        if override.blocked and (before.waiting or before.leased):
            remarks.append(f"{count(before.waiting, 'request')} of it wait; those under way end first.")
        if override.delay is not None and override.delay < before.robots:
            remarks.append(f"Its robots.txt asks for {duration(before.robots)} between requests.")
    return remarks
