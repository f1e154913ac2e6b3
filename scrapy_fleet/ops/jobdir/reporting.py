"""What an import of a job directory would do, and has done, for people and as data."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from scrapy_fleet.model import Snapshot
from scrapy_fleet.ops.jobdir.reading import Found, Job
from scrapy_fleet.ops.jobdir.seen_file import SeenCounts
from scrapy_fleet.ops.show import count, number, paint, plain

SHOWN = 20
"""How many queues are shown one by one."""


class QueueReport(Struct):
    """What is in one queue, and what can be brought over."""

    name: str
    kind: str
    priority: int
    seeds: bool
    readable: int = 0
    fetched: int = 0
    """Links that were found on their pages are in the queues: they have been fetched, and are left out."""
    pickled: int = 0
    found: Found = msgspec.field(default_factory=Found)
    unreadable: dict[str, int] = {}
    """Why, and how many."""


class Report(Struct):
    """What an import would do."""

    queues: list[QueueReport]
    seen: SeenCounts
    state: list[str] = []
    """Names in ``spider.state`` that come over."""
    left_out: list[str] = []
    """Why others do not."""
    strange: list[str] = []
    crashed: str = ""
    run_seeds: bool = False
    pickled_state: bool = False

    @property
    def readable(self) -> int:
        return sum(queue.readable for queue in self.queues)

    @property
    def unreadable(self) -> int:
        return sum(sum(queue.unreadable.values()) for queue in self.queues)

    @property
    def fetched(self) -> int:
        return sum(queue.fetched for queue in self.queues)

    @property
    def pickled(self) -> int:
        return sum(queue.pickled for queue in self.queues)

    @property
    def repeats(self) -> int:
        return sum(queue.readable for queue in self.queues if queue.found.repeats)


def data_of(report: Report) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(report)
    totals = ("readable", "fetched", "unreadable", "pickled", "repeats")
    return {**data, **{name: getattr(report, name) for name in totals}}


def show(job: Job, report: Report, url: str, snapshot: Snapshot, *, seen: bool) -> None:
    print(f"{paint(plain(str(job.path)), 'bold')} -> crawl {plain(snapshot.crawl)} at {url}")
    for queue in report.queues[:SHOWN]:
        print(f"  {plain(queue.name)}  {queue.kind.upper()}  {_counts(queue)}")
    if len(report.queues) > SHOWN:
        print(f"  and {number(len(report.queues) - SHOWN)} queues more")
    for name in report.strange[:SHOWN]:
        print(f"  {plain(name)}  is no queue, and is left out")
    print(f"  requests  {_total(report)}")
    for reason, many in _reasons(report)[:SHOWN]:
        print(f"    {number(many)} cannot be read: {plain(reason)}")
    torn = f", {count(report.seen.unreadable, 'piece')} cannot be read" if report.seen.unreadable else ""
    kept = "" if seen else " (only to be counted: --forget-seen)"
    print(f"  requests.seen  {count(report.seen.read, 'fingerprint')}{torn}{kept}")
    if report.pickled_state:
        names = ", ".join(map(plain, report.state)) or "nothing"
        print(f"  spider.state  {names}")
        for reason in report.left_out:
            print(f"    left out: {plain(reason)}")
    if report.crashed:
        print(f"  Scrapy did not end in order: {plain(report.crashed)}.")
        print("    What it was fetching then is in no file. Start requests that are done run again:", end=" ")
        print("yes." if report.run_seeds else "no.")
    if report.repeats:
        them = count(report.repeats, "request")
        print(f"    {them} of FIFO queues may have been fetched: what was taken out was not written down.")
        if report.fetched:
            print(f"    {number(report.fetched)} more have been: their links are in the queues.")


def _counts(queue: QueueReport) -> str:
    parts = (
        [f"priority {queue.priority}", "start requests"] if queue.seeds else [f"priority {queue.priority}"]
    )
    parts.append(count(queue.found.records, "request"))
    if queue.found.lost:
        parts.append(f"{number(queue.found.lost)} bytes are no request")
    if queue.found.problem:
        parts.append(f"stopped: {plain(queue.found.problem)}")
    return ", ".join(parts)


def _total(report: Report) -> str:
    pickled = f", {number(report.pickled)} of them pickled" if report.pickled else ""
    lost = sum(queue.found.lost for queue in report.queues)
    bytes_lost = f"; {number(lost)} bytes belong to no request" if lost else ""
    return (
        f"{number(report.readable)} can be imported, {number(report.unreadable)} cannot be read"
        f"{pickled}{bytes_lost}"
    )


def _reasons(report: Report) -> list[tuple[str, int]]:
    together: Counter[str] = Counter()
    for queue in report.queues:
        together.update(queue.unreadable)
    return together.most_common()


def tell(name: str, done: dict[str, int], after: Snapshot) -> None:
    known = f"; {number(done['known'])} were known to it" if done["known"] else ""
    print(f"Imported {count(done['brought'], 'request')} into crawl {plain(name)!r}{known}.")
    counts = after.counts
    print(f"It has {number(counts.waiting)} waiting, {number(after.seen)} seen. Start it as before.")
