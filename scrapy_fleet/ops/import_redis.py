"""``import scrapy-redis``: what its queue, duplicate set and start URLs hold, as a crawl of the fleet.

Nothing is changed of what is read, and nothing of it is trusted: what cannot be read is counted and told.
Requests are queued before their fingerprints are marked as seen, so that it can be interrupted anywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy.utils.httpobj import urlparse_cached

from scrapy_fleet.crawl.codec import TASK
from scrapy_fleet.errors import FleetError, Unreadable, Unstorable
from scrapy_fleet.model import TASKS, Entry
from scrapy_fleet.ops.import_redis_project import Project, is_pickle, open_project
from scrapy_fleet.ops.import_redis_source import Found, Source
from scrapy_fleet.ops.show import count, number, paint, plain, print_json

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from scrapy_fleet.store.base import Store

AT_ONCE = 250
MARKS_AT_ONCE = 2000
LOOKED_AT = 200
"""How many requests are looked at before anything is done."""
REASONS = 5
MAX_PRIORITY = 1 << 50


class Tally:
    """What came of it."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.changed: list[str] = []

    def refuse(self, error: Exception, member: bytes) -> None:
        reason = " ".join(str(error).split())
        self.bad[reason] += 1
        shown = member[:60].decode(errors="backslashreplace")
        self.examples.setdefault(reason, shown + "..." * (len(member) > 60))

    def as_data(self) -> dict[str, Any]:
        return {
            **{f"{name}_taken": self.taken[name] for name in ("requests", "seen", "start_urls")},
            **{f"{name}_known": self.known[name] for name in ("requests", "start_urls")},
            "refused": [{"reason": reason, "count": n} for reason, n in self.bad.most_common()],
            "changed": self.changed,
        }


def import_redis(opts: argparse.Namespace, settings: BaseSettings | None) -> int:
    project = open_project(settings, opts.spider, opts.own, to=opts.to, crawl=opts.crawl)
    with closing(Source.of(project, opts)) as source:
        queue, seen, start = source.look()
        pickles, looked, match = _sample(source, queue, project, trust=opts.trust_pickle)
        takes_start = not project.reads_start_urls(source.url)
        plan = {
            "from": source.shown,
            "to": project.shown,
            "crawl": project.crawl,
            "queue": queue.as_data(),
            "dupefilter": {**seen.as_data(), "fingerprints_match": match},
            "start_urls": {**start.as_data(), "taken": takes_start},
            "pickles": bool(pickles),
        }
        if not opts.as_json:
            _tell_plan(project, source, (queue, seen, start), takes_start=takes_start)
        if pickles and not opts.trust_pickle:
            raise FleetError(
                f"{queue.key} holds pickles ({pickles} of the first {looked} requests). A pickle can be made "
                "to run code; --trust-pickle reads those that hold plain data, and refuses all others. "
                "Nothing was changed."
            )
        if match is False and seen.size:
            raise FleetError(
                f"The fingerprints in {seen.key} are made in another way than this crawl makes them: all "
                "that was fetched would be fetched again. Use scrapy_fleet.scrapy_redis.scheduler.Scheduler, "
                "with the DUPEFILTER_CLASS of the old crawl; or leave the set out: --dupefilter none. "
                "Nothing was changed."
            )
        if not opts.sure:
            return _stop_here(plan, as_json=opts.as_json)
        tally = Tally()
        with closing(project.open_store()) as store:
            _take_queue(store, source, queue, project, tally, trust=opts.trust_pickle)
            _take_seen(store, source, seen, project, tally)
            if takes_start:
                _take_start_urls(store, source, start, tally)
    if opts.as_json:
        print_json({**plan, "done": True, **tally.as_data()})
    else:
        _tell(tally, project)
    return 1 if tally.bad or tally.changed else 0


# Before


def _sample(source: Source, queue: Found, project: Project, *, trust: bool) -> tuple[int, int, bool | None]:
    """How many of how many first requests are pickles; whether the set has their fingerprints, if that
    can be told."""
    members = [member for member, _ in islice(source.requests(queue), LOOKED_AT)]
    pickles = sum(map(is_pickle, members))
    prints: list[str] = []
    for member in members:
        try:
            request = project.request(member, trust=trust)
        except Unreadable:
            continue
        if not request.dont_filter:
            prints.append(project.fingerprint_text(request))
    if not prints or not project.filtered:
        return pickles, len(members), None
    return pickles, len(members), any(source.has_seen(prints))


def _tell_plan(project: Project, source: Source, found: tuple[Found, ...], *, takes_start: bool) -> None:
    queue, seen, start = found
    crawl = paint(plain(project.crawl), "bold")
    print(f"From {paint(source.shown, 'bold')} to crawl {crawl} at {project.shown}:")
    print(f"  {count(queue.size, 'request')} that wait  ({queue})")
    print(f"  {count(seen.size, 'fingerprint')} of what was seen  ({seen})")
    left = "" if takes_start or not start.size else "; they stay: the spider reads them there itself"
    print(f"  {count(start.size, 'start URL')}  ({start}{left})")


def _stop_here(plan: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print_json({**plan, "done": False})
    else:
        print("Nothing was changed. First stop the workers of scrapy-redis, then do it: add --yes")
    return 0


# Doing it


def _take_queue(
    store: Store, source: Source, queue: Found, project: Project, tally: Tally, *, trust: bool
) -> None:
    times: Counter[bytes] = Counter()

    def entries() -> Iterator[Entry]:
        for member, priority in source.requests(queue):
            try:
                request = project.request(member, trust=trust)
                payload = project.codec.encode(request)
                slot = str(request.meta.get("download_slot") or urlparse_cached(request).hostname or "")
                if request.dont_filter or not project.filtered:
                    key = _own_key(queue.key, member, times)
                else:
                    key = project.key(request)
            except (Unreadable, Unstorable) as error:
                tally.refuse(error, member)
                continue
            rank = 0 if project.flat else request.priority if priority is None else priority
            yield Entry(slot, payload, max(-MAX_PRIORITY, min(MAX_PRIORITY, rank)), key)

    _push(store, entries(), "requests", tally)
    if source.size(queue) != queue.size:
        tally.changed.append(queue.key)


def _take_seen(store: Store, source: Source, seen: Found, project: Project, tally: Tally) -> None:
    marks: list[int] = []
    for member in source.members(seen):
        try:
            marks.append(project.key_of_member(member))
        except Unreadable as error:
            tally.refuse(error, member)
        if len(marks) >= MARKS_AT_ONCE:
            store.push((), tuple(marks))
            tally.taken["seen"] += len(marks)
            marks = []
    store.push((), tuple(marks))
    tally.taken["seen"] += len(marks)


def _take_start_urls(store: Store, source: Source, start: Found, tally: Tally) -> None:
    times: Counter[bytes] = Counter()
    tasks = (
        Entry(TASKS, TASK + member, 0, _own_key(start.key, member, times), seed=True)
        for member in source.start_urls(start)
    )
    _push(store, tasks, "start_urls", tally)


def _push(store: Store, entries: Iterator[Entry], what: str, tally: Tally) -> None:
    while some := tuple(islice(entries, AT_ONCE)):
        known = len(store.push(some))
        tally.taken[what] += len(some) - known
        tally.known[what] += known


def _own_key(source: str, member: bytes, times: Counter[bytes]) -> int:
    """What is not filtered is recognised all the same when it is brought again: by its bytes, and by which
    of several equal ones it is."""
    digest = blake2b(member, digest_size=16, person=b"fleet import").digest()
    times[digest] += 1
    text = b"%s %d %s" % (source.encode(), times[digest], digest)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


# After


def _tell(tally: Tally, project: Project) -> None:
    taken, known = tally.taken, tally.known
    parts = (("requests", "request"), ("seen", "fingerprint"), ("start_urls", "start URL"))
    again = f" {number(known.total())} more were there already." if known.total() else ""
    print(f"Taken: {', '.join(count(taken[name], noun) for name, noun in parts)}.{again}")
    if tally.bad:
        print(f"{count(tally.bad.total(), 'member')} could not be read and were left where they are:")
        for reason, n in tally.bad.most_common(REASONS):
            print(f"  {number(n)} x {plain(reason)}  {paint(f'({plain(tally.examples[reason])})', 'dim')}")
        if (more := len(tally.bad) - REASONS) > 0:
            print(f"  and {count(more, 'other reason')}; all of them: --json")
    for key in tally.changed:
        print(
            f"{key} has changed meanwhile, and may not have been read whole: stop the workers of "
            "scrapy-redis, and repeat this; nothing is taken twice.",
            file=sys.stderr,
        )
    print(f"See it: scrapy fleet status {plain(project.crawl)}")
