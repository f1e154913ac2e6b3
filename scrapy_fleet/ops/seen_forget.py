"""``seen forget``: URLs that a crawl is to fetch when it meets them again."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy_fleet.crawl.codec import describe
from scrapy_fleet.errors import FleetError
from scrapy_fleet.keys import key_of
from scrapy_fleet.ops.finding import AnySpiders, Found, Walk, fingerprinter_of, slots_for
from scrapy_fleet.ops.host_arguments import LOOK_AT
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.progress import Progress
from scrapy_fleet.ops.seen import PAGE, checked, fingerprints
from scrapy_fleet.ops.show import agreed, count, number, plain, print_json

if TYPE_CHECKING:
    from scrapy_fleet.model import Row
    from scrapy_fleet.store.base import Store

MANY_HOSTS = 10_000
STATES = ("waiting", "leased", "dead")
STAR = "[*]"
"""How a star is written that is part of a URL."""
ONLY_OPEN = (
    "Of pages that are done the crawl keeps 64 bits each, and no URLs: a pattern cannot find them. "
    "To forget these, name their URLs."
)
STAYS = "No request is taken away by it: what waits is fetched, and once more if it is met again."


def forget(
    place: Place, crawl: str | None, words: list[str], *, limit: int | None, sure: bool, as_json: bool
) -> int:
    if as_json and not sure:
        raise FleetError("Forgetting asks first, which --json cannot: add --yes.")
    patterns = [word for word in words if "*" in word.replace(STAR, "")]
    urls = [word.replace(STAR, "*") for word in words if word not in patterns]
    settings = place.settings
    place, name = place.resolve(crawl)
    fingerprint_of = fingerprints(settings, name)
    prints = {checked(fingerprint_of, url) for url in urls}
    with closing(place.open(name)) as store:
        plan = store.seen_info().plan
        if plan is not None and plan.kind == "bloom":
            raise FleetError(
                f"Crawl {name!r} knows what it has met by a Bloom filter, which cannot forget a URL. "
                f"All of it can be forgotten: scrapy fleet seen {name} convert off, or clear {name}."
            )
        matching = Matching(store, patterns, limit or LOOK_AT)
        found = matching.all(quiet=as_json) if patterns else []
        fingerprinter = fingerprinter_of(settings, name) if found else None
        prints |= {each for one in found if (each := _fingerprint(fingerprinter, one.row)) is not None}
        keys = list(set(map(key_of, prints)))
        known = [key for key, is_seen in zip(keys, _seen(store, keys), strict=True) if is_seen]
        states = Counter(one.state for one in found)
        if not as_json:
            _say_what(name, states, patterns, matching, len(known))
        if not known:
            forgotten = 0
        elif sure or agreed(f"Forget {'it' if len(known) == 1 else 'them'}?"):
            forgotten = sum(store.forget(tuple(known[at : at + PAGE])) for at in range(0, len(known), PAGE))
        else:
            print("Nothing was changed.")
            return 2
        workers = len(store.snapshot(0).workers)
    if as_json:
        matched = {state: states[state] for state in STATES} if patterns else None  # type: ignore[index]
        answer = {"crawl": name, "forgotten": forgotten, "matched": matched, "complete": matching.complete}
        print_json(answer)
    elif forgotten:
        again = "it is fetched when a link to it is" if forgotten == 1 else "they are fetched when they are"
        print(f"{count(forgotten, 'URL')} of crawl {plain(name)!r} forgotten: {again} met again.")
        if workers:
            print("Workers that run now may pass over such links for a while (FLEET_KNOWN_URLS).")
    return 0


def _say_what(name: str, states: Counter[Any], patterns: list[str], matching: Matching, known: int) -> None:
    if patterns:
        terms = ", ".join(f"{number(states[state])} {state}" for state in STATES)
        print(f"Requests of crawl {plain(name)!r} that match: {terms}. {ONLY_OPEN}")
        if states["waiting"] or states["leased"]:
            print(STAYS)
        if not matching.complete:
            print(f"Only {number(matching.looked)} waiting requests were looked at; more with --limit.")
    print(f"{count(known, 'URL')} would be forgotten." if known else "There is nothing of it to forget.")


def _seen(store: Store, keys: list[int]) -> list[bool]:
    return [
        is_seen for at in range(0, len(keys), PAGE) for is_seen in store.seen(tuple(keys[at : at + PAGE]))
    ]


_codec = AnySpiders()


def _fingerprint(fingerprinter: Any, row: Row) -> bytes | None:
    try:
        made: bytes = fingerprinter.fingerprint(_codec.decode(row.payload))
    except Exception:  # damaged, of a class that is not loaded, or the fingerprinter cannot take it
        return None
    return made


class Matching(Walk):
    """Entries whose URLs match one of some patterns, in which ``*`` stands for anything."""

    def __init__(self, store: Store, patterns: list[str], limit: int) -> None:
        super().__init__(store, limit)
        self._patterns = patterns
        self._regex = re.compile("|".join(f"(?:{_regex(pattern)})" for pattern in patterns))

    def all(self, *, quiet: bool) -> list[Found]:
        slots: dict[str, None] = {}
        for pattern in self._patterns:
            slots |= dict.fromkeys(self._slots(pattern))
        with Progress(quiet=quiet) as progress:

            def tell(slot: str, looked: int) -> None:
                progress.tell(f"looked at {number(looked)} waiting requests ({plain(slot)})")

            met = {(one.row.slot, one.row.id): one for one in self.everywhere(list(slots), tell)}
        return list(met.values())

    def _slots(self, pattern: str) -> list[str]:
        """Where entries may wait that match."""
        head, _, _ = pattern.partition("*")
        if "://" in head and "/" in head.partition("://")[2]:
            host = urlsplit(head).hostname
            if host is not None:
                return slots_for(self._store, host)
        return [slot.name for slot in self._store.snapshot(MANY_HOSTS).slots if slot.waiting]

    def _match(self, row: Row) -> bool | None:
        try:
            url = describe(row.payload)["url"] or ""
        except Exception:  # damaged
            return None
        return False if self._regex.fullmatch(url) else None


def _regex(pattern: str) -> str:
    parts = (re.escape(part.replace("\0", "*")) for part in pattern.replace(STAR, "\0").split("*"))
    return ".*".join(parts)
