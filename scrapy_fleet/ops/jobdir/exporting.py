"""``export jobdir``: writes a job directory with which Scrapy's own scheduler goes on.

The queues are written by Scrapy's own classes, those that the settings name, so they are what it reads.
"""

from __future__ import annotations

import json
import pickle
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.pqueues import DownloaderAwarePriorityQueue, ScrapyPriorityQueue
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_fleet.cargo import About, Kept, Piece
from scrapy_fleet.crawl.codec import describe
from scrapy_fleet.crawl.jobdir import JobdirDupeFilter, short
from scrapy_fleet.crawl.plain import unpack
from scrapy_fleet.errors import FleetError, SettingError, Unreadable
from scrapy_fleet.ops.home import Home, find_spider
from scrapy_fleet.ops.jobdir.requests import slot_of
from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import count, number, plain, print_json
from scrapy_fleet.ops.transfer import at_rest, keys_of

SETTING = f"DUPEFILTER_CLASS = {f'{JobdirDupeFilter.__module__}.{JobdirDupeFilter.__name__}'!r}"


class Queues:
    """Writes ``requests.queue`` as the scheduler of this project would have left it."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._home = home
        settings = home.crawler.settings
        self._key = str(folder)
        self._priority_queue = load_object(settings["SCHEDULER_PRIORITY_QUEUE"])
        self._by_slot = self._of(DownloaderAwarePriorityQueue)
        if not self._by_slot and not self._of(ScrapyPriorityQueue):
            raise _refusal(
                "SCHEDULER_PRIORITY_QUEUE", settings, "scrapy.pqueues.DownloaderAwarePriorityQueue"
            )
        self._queue = _queue_class("SCHEDULER_DISK_QUEUE", settings)
        start = settings.get("SCHEDULER_START_DISK_QUEUE")
        self._start_queue = _queue_class("SCHEDULER_START_DISK_QUEUE", settings) if start else None
        # It asks the downloader what is throttled together; nothing else is asked of the engine.
        home.crawler.engine = SimpleNamespace(  # type: ignore[assignment]
            downloader=SimpleNamespace(get_slot_key=slot_of, slots={})
        )
        home.crawler.spider = home.spider
        self._state: dict[str, list[int]] | list[int] = {} if self._by_slot else []
        self._all: Any = None if self._by_slot else self._new()
        self.written: list[bytes] = []
        self.unwritable: Counter[str] = Counter()
        self.count = 0

    def _of(self, kind: type) -> bool:
        return isinstance(self._priority_queue, type) and issubclass(self._priority_queue, kind)

    def _new(self) -> Any:
        return build_from_crawler(
            self._priority_queue,
            self._home.crawler,
            downstream_queue_cls=self._queue,
            key=self._key,
            start_queue_cls=self._start_queue,
        )

    def add(self, entries: list[Kept]) -> None:
        """Those of one slot, in the order in which they would be handed out."""
        # One slot at a time: queues keep their files open.
        queue = self._all if self._all is not None else self._new()
        for entry in self._as_pushed(entries):
            try:
                request = self._request(entry)
                queue.push(request)
            except (Unreadable, ValueError) as error:
                self.unwritable[str(error)] += 1
                continue
            self.count += 1
            if not request.dont_filter:
                self.written.append(self._home.fingerprint(request))
        if self._all is None:
            assert isinstance(self._state, dict)
            for slot, priorities in queue.close().items():
                self._state[slot] = sorted({*self._state.get(slot, ()), *priorities})

    def _as_pushed(self, entries: list[Kept]) -> Iterator[Kept]:
        """Such that what is to be first comes out first."""
        start = [entry for entry in entries if entry.seed]
        others = [entry for entry in entries if not entry.seed]
        start_queue = self._start_queue or self._queue
        yield from reversed(others) if _is_lifo(self._queue) else others
        yield from reversed(start) if _is_lifo(start_queue) else start

    def _request(self, entry: Kept) -> Request:
        request = self._home.codec.decode(entry.payload)
        names = describe(entry.payload)
        if "" in (names["callback"], names["errback"]):
            raise Unreadable("it has no callback (NO_CALLBACK), which Scrapy's queues cannot keep")
        # By their names, as they are written. Scrapy would look for them among the spider's members.
        request.callback, request.errback = names["callback"], names["errback"]  # type: ignore[assignment]
        return request

    def close(self) -> None:
        if self._all is not None:
            self._state = list(self._all.close())
        Path(self._key).mkdir(parents=True, exist_ok=True)
        Path(self._key, "active.json").write_text(json.dumps(self._state), encoding="utf-8")


def _queue_class(setting: str, settings: Any) -> Any:
    found = load_object(settings[setting])
    if found.__module__ != "scrapy.squeues":
        raise _refusal(setting, settings, "scrapy.squeues.PickleLifoDiskQueue")
    return found


def _refusal(setting: str, settings: Any, instead: str) -> SettingError:
    return SettingError(
        f"{setting} = {settings[setting]!r} is not one of Scrapy's own: what it keeps cannot be written. "
        f"Write the job directory for another one: -s {setting}={instead}"
    )


def _is_lifo(queue: Any) -> bool:
    return any("lifo" in cls.__name__.lower() for cls in queue.__mro__)


class _Given:
    """Gives the fingerprint that is to be written."""

    def __init__(self, fingerprint: bytes) -> None:
        self._fingerprint = fingerprint

    def fingerprint(self, request: Request) -> bytes:
        return self._fingerprint


def write_seen(path: Path, fingerprints: Iterable[bytes]) -> int:
    """``requests.seen``, in the form in which this Scrapy writes it."""
    sample = bytes(range(8))
    with tempfile.TemporaryDirectory(prefix="fleet-seen-") as folder:
        theirs = RFPDupeFilter(folder, fingerprinter=_Given(sample))
        theirs.request_seen(Request("data:,"))
        theirs.close("finished")
        found = Path(folder, "requests.seen").read_bytes()
    if found == b"\0\x08" + sample:
        form = _with_length
    elif found.rstrip(b"\r\n") == sample.hex().encode():
        form = _as_line
    else:
        raise FleetError("This Scrapy keeps requests.seen in a form that is not known. Upgrade scrapy-fleet.")
    written = 0
    with path.open("wb") as file:
        for fingerprint in fingerprints:
            file.write(form(fingerprint))
            written += 1
    return written


def _with_length(fingerprint: bytes) -> bytes:
    return len(fingerprint).to_bytes(2, "big") + fingerprint


def _as_line(fingerprint: bytes) -> bytes:
    return fingerprint.hex().encode() + b"\n"


def _state_of(about: About) -> dict[str, object]:
    return {name: unpack(value) for name, value in about.state.items()}


# The command


def export_jobdir(place: Place, crawl: str, path: Path, *, spider: str | None, as_json: bool) -> int:
    home = Home(find_spider(place, spider, crawl), place.settings)
    place, name = place.resolve(crawl)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FleetError(f"{path} is there already, and not empty. Name a new folder.")
    made = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with closing(place.open(name)) as store:
            at_rest(store)
            about, queues, dead = _write_queues(home, store.dump(), path)
            keys = (short(key) for page in keys_of(store) for key in page.keys)
            seen = write_seen(path / "requests.seen", keys)
        # For who forgets the setting: what waits is known by Scrapy's own fingerprints too.
        with (path / "requests.seen").open("ab") as file, tempfile.TemporaryDirectory() as folder:
            write_seen(Path(folder, "waiting"), queues.written)
            file.write(Path(folder, "waiting").read_bytes())
        (path / "spider.state").write_bytes(pickle.dumps(_state_of(about), protocol=4))
    except BaseException as error:
        if made:
            shutil.rmtree(path, ignore_errors=True)
        if isinstance(error, OSError):
            raise FleetError(f"{path} cannot be written: {error.strerror or error}.") from error
        raise
    if as_json:
        told = {"crawl": name, "path": str(path), "requests": queues.count, "seen": seen, "dead": dead}
        print_json({**told, "unwritable": dict(queues.unwritable), "setting": SETTING})
        return 0
    print(f"{plain(str(path))}: {count(queues.count, 'request')} waiting, {number(seen)} seen.")
    for reason, many in queues.unwritable.most_common():
        print(f"  {number(many)} cannot be written: {plain(reason)}")
    if dead:
        print(f"  {count(dead, 'dead request')} left out; see: dead {plain(name)}")
    print("Go on with stock Scrapy: take scrapy_fleet.Addon out of ADDONS, set JOBDIR to this folder, and")
    print(f"  {SETTING}")
    print("It runs the start requests again, as it always does.")
    return 0


def _write_queues(home: Home, pieces: Iterator[Piece], path: Path) -> tuple[About, Queues, int]:
    queues = Queues(home, path / "requests.queue")
    about = next(pieces)
    assert isinstance(about, About)
    kept = (piece for piece in pieces if isinstance(piece, Kept))
    dead = 0
    for (_, is_dead), group in groupby(kept, key=lambda piece: (piece.slot, piece.dead is not None)):
        entries = list(group)
        if is_dead:
            dead += len(entries)
        else:
            queues.add(entries)
    queues.close()
    return about, queues, dead
