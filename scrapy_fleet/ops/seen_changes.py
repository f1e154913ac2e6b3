"""``seen import`` and ``seen convert``: what a crawl is told that it has met, and how it is to know it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scrapy_fleet.errors import FleetError, StoreAway
from scrapy_fleet.keys import key_of
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.progress import Progress
from scrapy_fleet.ops.seen import PAGE, fingerprints, in_words
from scrapy_fleet.ops.seen_files import SeenFile
from scrapy_fleet.ops.show import agreed, count, number, plain, print_json
from scrapy_fleet.settings import seen_plan

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from scrapy_fleet.model import SeenKind, SeenPlan
    from scrapy_fleet.store.base import Store


def plan_of(settings: BaseSettings | None, crawl: str, kind: SeenKind | None = None) -> SeenPlan:
    """What the settings of the project, or of the crawl's spider, ask for."""
    from scrapy_fleet.ops.finding import crawler_of

    return seen_plan(crawler_of(settings, crawl).settings, kind)


# From a file


def take_in(place: Place, crawl: str | None, file: str, *, create: bool, as_json: bool) -> int:
    settings = place.settings
    with _input(file) as stream, _store(place, crawl, create=create) as (store, name):
        fingerprint_of = fingerprints(settings, name)
        if store.seen_info().plan is None:
            store.use_seen(plan_of(settings, name))
        view = store.seen_info()
        if view.plan is not None and view.plan.kind == "off":
            raise FleetError(
                f"Crawl {name!r} filters nothing (FLEET_SEEN is 'off'): it would know none of it."
            )
        source = SeenFile(stream, file, lambda url: key_of(fingerprint_of(url)))
        with Progress(quiet=as_json) as progress:
            read, new = _mark(store, source, progress)
        seen, finished = store.seen_info().count, store.snapshot(0).status == "finished"
    if as_json:
        print_json({"crawl": name, "what": source.what, "read": read, "new": new, "seen": seen})
        return 0
    if source.what is None:
        print(f"There is nothing in {file}.")
        return 0
    noun = source.what.removesuffix("s")
    print(
        f"{count(read, noun)} read, {number(new)} new: crawl {plain(name)!r} has seen {number(seen)}. "
        f"Filter: {in_words(view.plan)}."
    )
    if finished and view.plan is not None and view.plan.kind != "rolling":
        print("It has finished: its next run forgets what was seen, unless FLEET_ON_FINISH is 'keep'.")
    return 0


def _mark(store: Store, source: SeenFile, progress: Progress) -> tuple[int, int]:
    """How many keys were read, and how many of them are new."""
    read = new = 0
    keys: list[int] = []
    try:
        for key in source:
            keys.append(key)
            read += 1
            if len(keys) == PAGE:
                new += store.mark(tuple(keys))
                keys.clear()
                progress.tell(f"read {number(read)} {source.what}, {number(new)} new")
    except StoreAway:
        raise
    except FleetError:  # of the file: what came before is kept, as its message says
        store.mark(tuple(keys))
        raise
    return read, new + store.mark(tuple(keys))


@contextmanager
def _input(file: str) -> Iterator[BufferedReader]:
    if file == "-":
        yield sys.stdin.buffer  # type: ignore[misc]
        return
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise FleetError(f"{file} cannot be read: {error.strerror}.") from error
        yield stream


@contextmanager
def _store(place: Place, crawl: str | None, *, create: bool) -> Iterator[tuple[Store, str]]:
    try:
        found, name = place.resolve(crawl)
        store = found.open(name)
    except FleetError as error:
        wanted = crawl or place.crawl
        if wanted is None or "no crawl" not in str(error):
            raise
        if not create:
            raise FleetError(f"{error} To make it: --create.") from error
        name = wanted
        store = place.for_new(name).connect(name)
    with closing(store):
        yield store, name


# To another filter


def convert(
    place: Place, crawl: str | None, kind: SeenKind, own: dict[str, Any], *, sure: bool, as_json: bool
) -> int:
    settings = place.settings
    place, name = place.resolve(crawl)
    asked = plan_of(settings, name)
    plan = replace(plan_of(settings, name, kind), **own)
    with closing(place.open(name)) as store:
        view = store.seen_info()
        if view.plan == plan:
            raise FleetError(f"Crawl {name!r} has this filter already: {in_words(plan)}.")
        if not sure:
            if as_json:
                raise FleetError("Converting asks first, which --json cannot: add --yes.")
            print(f"Crawl {plain(name)!r} has seen {count(view.count, 'URL')}. Now: {in_words(view.plan)}.")
            print(f"Then: {in_words(plan)}.{_lost(plan)}")
            if not agreed("Convert it?"):
                print("Nothing was changed.")
                return 2
        with Progress(quiet=as_json) as progress:
            progress.tell(f"converting {count(view.count, 'URL')}; until it is done, the old filter is whole")
            moved = store.convert(plan)
    if as_json:
        print_json({"crawl": name, "kind": kind, "count": moved, "settings": _to_set(plan)})
        return 0
    print(f"Converted: crawl {plain(name)!r} has seen {count(moved, 'URL')}. Filter: {in_words(plan)}.")
    if asked != plan:
        lines = ", ".join(f"{setting} = {value!r}" for setting, value in _to_set(plan).items())
        print(f"Its workers must ask for it, or they are refused: {lines}")
    return 0


def _lost(plan: SeenPlan) -> str:
    if plan.kind == "bloom":
        return " A Bloom filter cannot be turned back, nor can anything in it be listed or forgotten."
    return " What was seen is forgotten." if plan.kind == "off" else ""


def _to_set(plan: SeenPlan) -> dict[str, Any]:
    """The settings under which the crawl goes on."""
    names = {"bloom": ("capacity", "error"), "rolling": ("window", "hot")}.get(plan.kind, ())
    return {"FLEET_SEEN": plan.kind} | {f"FLEET_SEEN_{name.upper()}": getattr(plan, name) for name in names}
