"""``why``: where a URL is, and what it waits for."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import SlotView, Snapshot, WorkerView
from scrapy_fleet.ops.entries import as_data
from scrapy_fleet.ops.finding import Found, Search, fingerprinter_of, keys_of, slots_for
from scrapy_fleet.ops.hosts import is_blocked, moment
from scrapy_fleet.ops.overrides import host_in
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.progress import Progress
from scrapy_fleet.ops.show import count, duration, number, paint, plain, print_json
from scrapy_fleet.ops.status import look

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

SHOWN = 10
"""How many entries of one URL are shown."""

State = Literal["waiting", "leased", "dead", "done", "unknown", "done or waiting"]


def why(place: Place, crawl: str | None, url: str, *, slot: str | None, limit: int, as_json: bool) -> int:
    if "://" not in url:
        raise FleetError(f"{url!r} is no URL: it begins with http:// or https://, and comes last.")
    settings = place.settings
    place, name = place.resolve(crawl)
    fingerprinter = fingerprinter_of(settings, name)
    with closing(place.open(name)) as store:
        try:
            search = Search(store, url, fingerprinter, limit)
        except ValueError as error:
            raise FleetError(f"{url!r} is no URL: {error}.") from error
        slots = [slot] if slot is not None else slots_for(store, host_in(search.url))
        (as_link, as_seed), found = _find(store, search, slots, quiet=as_json)
        views = {each: store.slot(each) for each in {one.row.slot for one in found[:SHOWN]}}
        snapshot = look(store, 0)
    seen = as_link or as_seed
    state = _state(seen, found, search.complete)
    if as_json:
        answer = {"crawl": name, "url": search.url, "state": state, "seen": seen, "count": len(found)}
        answer |= {"looked_at": search.looked, "complete": search.complete}
        answer["entries"] = [_as_data(one, views[one.row.slot]) for one in found[:SHOWN]]
        print_json(answer)
        return 0
    print(f"{paint(plain(search.url), 'bold')}  {state}")
    for line in _lines(state, as_link, found, views, search, snapshot):
        print(f"  {line}")
    return 0


def _find(
    store: Store, search: Search, slots: list[str], *, quiet: bool
) -> tuple[tuple[bool, ...], list[Found]]:
    """As what the URL was seen, and the entries that there are of it."""
    for _ in range(2):
        keys = keys_of(search.fingerprint, store.snapshot(0).run)
        seen = store.seen(keys)
        with Progress(quiet=quiet) as progress:

            def tell(slot: str, looked: int) -> None:
                progress.tell(f"looked at {number(looked)} waiting requests ({plain(slot)})")

            met = {(one.row.slot, one.row.id): one for one in search.everywhere(slots, tell)}
        # One that was put back meanwhile may have slipped by. That it does so twice is unlikely.
        if met or not any(seen) or not search.complete:
            break
    order = ("leased", "waiting", "dead")
    return seen, sorted(met.values(), key=lambda one: (order.index(one.state), one.behind or 0))


def _state(seen: bool, found: list[Found], complete: bool) -> State:
    if found:
        return found[0].state
    if not seen:
        return "unknown"
    return "done" if complete else "done or waiting"


def _as_data(one: Found, view: SlotView | None) -> dict[str, Any]:
    row = one.row
    data = {"state": one.state, **as_data(row), "dont_filter": one.dont_filter, "behind": one.behind}
    data |= {"worker": row.worker, "reason": row.reason}
    data["slot"] = msgspec.to_builtins(view) if one.state == "waiting" else None
    return data


# In words


def _lines(
    state: State,
    as_link: bool,
    found: list[Found],
    views: dict[str, SlotView | None],
    search: Search,
    snapshot: Snapshot,
) -> list[str]:
    lines: list[str] = []
    for one in found[:SHOWN]:
        lines += _entry_lines(one, search.url, views[one.row.slot], snapshot)
    if len(found) > SHOWN:
        lines.append(f"and {number(len(found) - SHOWN)} more")
    if len(found) > 1:
        lines.append(f"It is stored {number(len(found))} times: with dont_filter, or with several methods.")
    elif found and found[0].dont_filter and as_link:
        lines.append("It was met as a link, too, and has been handled: this one is stored with dont_filter.")
    if state == "done":
        lines.append(
            "It has been handled" + (", in this run or an earlier one." if snapshot.run > 1 else ".")
        )
    if state == "unknown":
        lines.append(
            "The crawl has not met it. (A request with dont_filter leaves no trace when it is done.)"
        )
    if not search.complete:
        lines.append(_stopped(search, state, found))
    if state in ("waiting", "done or waiting") and snapshot.status in ("paused", "stopping", "stopped"):
        lines.append(f"The crawl is {snapshot.status}.")
    return lines


def _stopped(search: Search, state: State, found: list[Found]) -> str:
    where = f"Stopped looking after {count(search.looked, 'waiting request')}"
    if found:
        return f"{where}; there may be more of it. Look further: --limit"
    unseen = state == "unknown"
    sure = (
        "only one with dont_filter can wait further back" if unseen else "it is done, or waits further back"
    )
    return f"{where}: {sure}. Look further: --limit"


def _entry_lines(one: Found, asked: str, view: SlotView | None, snapshot: Snapshot) -> list[str]:
    row = one.row
    data = as_data(row)
    verb = "" if data["method"] in (None, "GET") else f"{plain(data['method'])}: "
    crashes = f"; {count(row.attempts, 'worker')} died holding it" if row.attempts else ""
    spelt = [f"it is stored as {plain(data['url'])}"] if data["url"] not in (None, asked) else []
    if one.state == "leased":
        return [f"{verb}leased by {_worker(row.worker, snapshot.workers)}{crashes}", *spelt]
    if one.state == "dead":
        again = paint(f"Try again: scrapy fleet dead {plain(snapshot.crawl)} requeue {row.id}", "dim")
        return [f"{verb}dead: {plain(row.reason or 'no reason was kept')}{crashes}", *spelt, again]
    assert one.behind is not None
    place = f"behind {count(one.behind, 'other')}" if one.behind else "the next"
    waits = f"{verb}waiting in {plain(row.slot)}, {place}, priority {row.priority}{crashes}"
    return [waits, *([] if view is None else [f"{plain(row.slot)}: {_slot(view)}"]), *spelt]


def _worker(id: str | None, workers: tuple[WorkerView, ...]) -> str:
    for worker in workers:
        if worker.id == id:
            heard = (
                f"given up in {duration(worker.deadline_in)} if it stays silent"
                if worker.deadline_in >= 0
                else f"silent, overdue by {duration(-worker.deadline_in)}"
            )
            return f"{plain(worker.id)} (process {worker.pid} on {plain(worker.host)}; {heard})"
    return plain(id or "a worker that has left")


def _slot(view: SlotView) -> str:
    """What holds the requests of this slot."""
    if is_blocked(view):
        return "blocked; none of its requests run until it is unblocked"
    pace = f"{number(view.concurrency)} at a time" + (f", {duration(view.delay)} apart" if view.delay else "")
    if view.reason == "full":
        return f"full; it takes {pace}, and so many are under way"
    if view.reason.startswith("delay"):
        return f"waits for its {plain(view.reason)}; {pace}, the next in {duration(view.next_in)}"
    if view.reason.startswith("given up"):
        return f"{plain(view.reason)}; its requests end as dead"
    if view.reason:
        return f"left alone ({plain(view.reason)}) for {duration(view.next_in)}, until {moment(view.next_in)}"
    return f"may run now; {pace}"
