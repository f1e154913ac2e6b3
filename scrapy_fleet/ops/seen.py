"""``seen``: what a crawl has met, whether a URL is among it, and all of it in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scrapy_fleet.errors import FleetError
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.progress import Progress
from scrapy_fleet.ops.seen_files import as_line
from scrapy_fleet.ops.show import count, duration, number, paint, plain, print_json, size

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from scrapy_fleet.model import SeenPlan, SeenView
    from scrapy_fleet.store.base import Store

PAGE = 5000


def show(place: Place, crawl: str | None, *, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        view = store.seen_info()
    if as_json:
        print_json({"crawl": name, **as_data(view)})
        return 0
    print(f"{paint(plain(name), 'bold')}  {in_words(view.plan)}")
    for line in _lines(view):
        print(f"  {line}")
    return 0


def as_data(view: SeenView) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(view)
    plan = data.pop("plan")
    data |= {"kind": plan["kind"] if plan else None, "plan": plan, "fill": view.fill}
    data["bytes_per_url"] = _each(view)
    return data


def _each(view: SeenView) -> float | None:
    return round(view.bytes / view.count, 2) if view.bytes is not None and view.count else None


def in_words(plan: SeenPlan | None) -> str:
    if plan is None:
        return "not decided: the first worker says how URLs are known (FLEET_SEEN)"
    about = "nothing is filtered"
    if plan.kind == "exact":
        about = "every URL is known, by 64 bits of its fingerprint"
    elif plan.kind == "bloom":
        about = f"made for {count(plan.capacity, 'URL')}, an error of {percent(plan.error)} at most"
    elif plan.kind == "rolling":
        hot = f", or {duration(plan.hot * plan.window)} if it was met again" if plan.hot > 1 else ""
        about = f"a URL is forgotten when it has not been met for {duration(plan.window)}{hot}"
    return f"{plan.kind} ({about})"


def percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share >= 1e-6 else "less than 0.0001 %"


def _lines(view: SeenView) -> Iterator[str]:
    if view.plan is None or view.plan.kind == "off":
        return
    taken = f", {size(view.bytes)}" if view.bytes is not None else ""
    each = _each(view)
    each_says = f": {each:.1f} bytes a URL" if each is not None else ""
    yield f"{count(view.count, 'URL')}{taken}{each_says}"
    if view.fill is not None:
        room = f"{count(view.layers, 'layer')}, for {number(view.room or 0)} URLs"
        yield f"{100 * view.fill:.0f} % full: {room}"
    if view.error is not None:
        yield f"error now: {percent(view.error)}{_one_in(view.error)}"
    if view.generations:
        oldest = "" if view.oldest is None else f", the oldest last met {duration(view.oldest)} ago"
        yield f"{count(view.generations, 'generation')}{oldest}"


def _one_in(error: float) -> str:
    if error < 1e-9:
        return ""
    return f", 1 of {number(1 / error)} new URLs is taken for a known one, and never fetched"


# One URL


def fingerprints(settings: BaseSettings | None, crawl: str) -> Callable[[str], bytes]:
    """Makes fingerprints of URLs, as the crawl does; of what is no URL, it raises ValueError."""
    from scrapy import Request

    from scrapy_fleet.ops.finding import fingerprinter_of

    fingerprint = fingerprinter_of(settings, crawl).fingerprint

    def of(url: str) -> bytes:
        if "://" not in url:
            raise ValueError("it does not begin with http:// or https://")
        made: bytes = fingerprint(Request(url))
        return made

    return of


def has(place: Place, crawl: str | None, urls: list[str], *, as_json: bool) -> int:
    from scrapy_fleet.ops.finding import keys_of

    settings = place.settings
    place, name = place.resolve(crawl)
    fingerprint_of = fingerprints(settings, name)
    prints = [checked(fingerprint_of, url) for url in urls]
    with closing(place.open(name)) as store:
        run = store.snapshot(0).run
        pairs = [store.seen(keys_of(each, run)) for each in prints]
        view = store.seen_info()
    found = [
        {"url": url, "seen": as_link, "as_start": as_seed}
        for url, (as_link, as_seed) in zip(urls, pairs, strict=True)
    ]
    if as_json:
        print_json({"crawl": name, "urls": found, "error": view.error})
    else:
        for url, (as_link, as_seed) in zip(urls, pairs, strict=True):
            print(f"{paint('seen    ' if as_link else 'not seen', 'bold')}  {plain(url)}")
            if as_seed:
                print("          It was a start request of this run, which says nothing about links to it.")
        if any(as_link for as_link, _ in pairs) and view.error:
            print(
                f"A Bloom filter may be wrong that it was seen: it is for {percent(view.error)} of new URLs."
            )
        elif view.plan is not None and view.plan.kind == "off":
            print("The crawl filters nothing (FLEET_SEEN).")
    return 0 if all(as_link for as_link, _ in pairs) else 1


def checked(fingerprint_of: Callable[[str], bytes], url: str) -> bytes:
    try:
        return fingerprint_of(url)
    except ValueError as error:
        raise FleetError(f"{url!r} is no URL: {error}.") from None


# All of them


def export(place: Place, crawl: str | None, output: str | None, *, as_json: bool) -> int:
    if as_json and output is None:
        raise FleetError("Keys are written as lines, not as JSON: name a file with --output.")
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store, Progress(quiet=as_json) as progress:
        pages = _pages(store, progress)
        first = next(pages)  # what cannot be exported is told before a file is touched
        if output is None:
            for line in _file(name, first, pages):
                print(line)
            return 0
        written = -2  # the lines of its head
        path = Path(output)
        try:
            with path.open("w", encoding="ascii", errors="backslashreplace") as file:
                for line in _file(name, first, pages):
                    file.write(line + "\n")
                    written += 1
        except OSError as error:
            raise FleetError(f"{path} cannot be written: {error.strerror}.") from error
    if as_json:
        print_json({"crawl": name, "count": written, "file": str(path)})
    else:
        print(
            f"{count(written, 'fingerprint')} of crawl {plain(name)!r} in {path}: 64 bits of each, in hex "
            "digits. They cannot be turned back into URLs; import reads them."
        )
    return 0


def _pages(store: Store, progress: Progress) -> Iterator[list[int]]:
    cursor, done = "", 0
    while True:
        cursor, keys = store.seen_keys(cursor, PAGE)
        done += len(keys)
        progress.tell(f"read {number(done)} fingerprints")
        yield keys
        if not cursor:
            return


def _file(name: str, first: list[int], others: Iterator[list[int]]) -> Iterator[str]:
    yield f"# What crawl {plain(name)!r} has seen: the first 64 bits of the fingerprints of requests, in hex."
    yield "# They cannot be turned back into URLs. To read them: scrapy fleet seen CRAWL import FILE"
    yield from map(as_line, first)
    for keys in others:
        yield from map(as_line, keys)
