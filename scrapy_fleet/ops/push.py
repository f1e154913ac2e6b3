"""``scrapy fleet push``: tasks for a crawl, from arguments, files and standard input."""

from __future__ import annotations

import json
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from scrapy_fleet.errors import FleetError, StoreAway, StoreError
from scrapy_fleet.ops.show import count, paint
from scrapy_fleet.pushing import task_entry

if TYPE_CHECKING:
    from scrapy_fleet.model import Entry
    from scrapy_fleet.ops.place import Place
    from scrapy_fleet.store.base import Store

AT_ONCE = 250
HOLD = 60.0
"""Seconds for which a producer that is about to bring more holds the crawl open, unless it says so again."""
PATIENCE = 60.0
"""Seconds for which a store that is away is waited for."""

T = TypeVar("T")


def push(
    place: Place,
    crawl: str,
    tasks: list[str],
    *,
    files: list[Path],
    check_json: bool,
    priority: int,
    new: bool,
) -> int:
    store, name = _open(place, crawl, new=new)
    producer = f"push-{os.getpid()}-{secrets.token_hex(4)}"
    pushed = 0
    refused: list[str] = []
    try:
        if store.snapshot(0).status == "finished":
            print(
                f"Crawl {name!r} had finished. It goes on with these tasks, and what it has seen stays seen; "
                f"to begin anew, clear it first: scrapy fleet clear {name}",
                file=sys.stderr,
            )
        for batch in _batches(tasks, files, lambda: _insist(lambda: store.feed(producer, HOLD))):
            entries: list[Entry] = []
            for source, data in batch:
                if check_json and (wrong := _not_json(data)):
                    refused.append(f"{source}: {wrong}")
                else:
                    entries.append(task_entry(data, priority))
            if entries:
                _insist(partial(store.push, tuple(entries)))
                pushed += len(entries)
    except KeyboardInterrupt:
        print(f"{count(pushed, 'task')} pushed to crawl {name!r} before it was interrupted.")
        return 130
    finally:
        try:
            store.feed(producer, 0)
        except StoreAway:
            pass  # it is given up by itself
        finally:
            store.close()
    print(f"{count(pushed, 'task')} pushed to crawl {name!r}.")
    for wrong in refused[:20]:
        print(paint(f"not pushed, {wrong}", "red"), file=sys.stderr)
    if len(refused) > 20:
        print(
            paint(f"and {count(len(refused) - 20, 'more', 'more')} were not pushed", "red"), file=sys.stderr
        )
    return 1 if refused else 0


def _open(place: Place, crawl: str, *, new: bool) -> tuple[Store, str]:
    try:
        found, name = place.resolve(crawl)
        return found.open(name), name
    except (FleetError, StoreError):
        home = place.home_of_spider(crawl)
        if home is None and not new:
            raise
        return (home or place).connect(crawl), crawl


Line = tuple[str, bytes]
"""Where it is from, and the task."""


def _batches(tasks: list[str], files: list[Path], hold: Callable[[], None]) -> Iterator[list[Line]]:
    """Tasks, as many at a time as are there."""
    named = [(f"task {number}", os.fsencode(task)) for number, task in enumerate(tasks, 1) if task != "-"]
    for first in range(0, len(named), AT_ONCE):
        yield named[first : first + AT_ONCE]
    for path in files:
        if str(path) != "-":
            yield from _of_file(path)
    if "-" in tasks or Path("-") in files or not (tasks or files):
        yield from _of_stdin(hold)


def _of_file(path: Path) -> Iterator[list[Line]]:
    some: list[Line] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if task := line.strip():
                    some.append((f"{path}:{number}", task))
                if len(some) == AT_ONCE:
                    yield some
                    some = []
    except OSError as error:
        raise FleetError(f"{path} cannot be read: {error.strerror}.") from error
    if some:
        yield some


def _of_stdin(hold: Callable[[], None]) -> Iterator[list[Line]]:
    """Whoever writes may take his time: the crawl is held open meanwhile."""
    lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()

    def read() -> None:
        for number, line in enumerate(sys.stdin.buffer, 1):
            if task := line.strip():
                lines.put((f"line {number}", task))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    held = -HOLD
    while True:
        if time.monotonic() - held >= HOLD / 3:
            hold()
            held = time.monotonic()
        try:
            some = [lines.get(timeout=HOLD / 3)]
        except queue.Empty:
            continue
        while len(some) < AT_ONCE and some[-1] is not None:
            try:
                some.append(lines.get_nowait())
            except queue.Empty:
                break
        if whole := [line for line in some if line is not None]:
            yield whole
        if some[-1] is None:
            return


def _not_json(data: bytes) -> str:
    try:
        json.loads(data)
    except ValueError as error:
        return f"not JSON: {error}"
    return ""


def _insist(call: Callable[[], T]) -> T:
    """If an answer is lost, what was pushed with that call is pushed twice: rather that than not at all."""
    began, pause = time.monotonic(), 0.05
    while True:
        try:
            return call()
        except StoreAway:
            if time.monotonic() - began > PATIENCE:
                raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
