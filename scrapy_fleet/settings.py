"""Every ``FLEET_*`` setting: its name, default, meaning, and the Scrapy or scrapy-redis name it answers to.

The table is the only place where they are listed; ``docs/settings.md`` is checked against it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote
from weakref import WeakKeyDictionary

from msgspec import Struct

from scrapy_fleet import order, pacing
from scrapy_fleet.errors import FleetError, SettingError, StoreError
from scrapy_fleet.model import Backoff, Plan, SeenKind, SeenPlan
from scrapy_fleet.store.base import Store
from scrapy_fleet.values import checked, choice, duration, number, seconds, share, text, unknown
from scrapy_fleet.values import shown as shown

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings


class Setting(NamedTuple):
    name: str
    default: Any
    parse: Callable[[Any], Any]
    meaning: str
    alias: str | None = None


TABLE = (
    Setting(
        "FLEET_URL",
        None,
        text,
        "Where the crawl lives: `sqlite:///folder` or `sqlite:///file.db`; `redis://host:6379/0` for workers "
        "on many machines (also `rediss://`, `valkey://`, `unix://`, `redis+sentinel://`, "
        "`redis+cluster://`); or `memory:` (gone with the process). "
        "Unset: `<JOBDIR>/fleet.db`, else `.scrapy/fleet/<crawl>.db` in the project.",
    ),
    Setting("FLEET_CRAWL", None, text, "The name of the crawl. Unset: the spider's name."),
    Setting(
        "FLEET_COMMIT_INTERVAL",
        0.25,
        number(float, 0),
        "Seconds that outcomes gather before they are committed, while the worker has enough to do. "
        "A worker with nothing to run commits at once.",
    ),
    Setting("FLEET_COMMIT_SIZE", 500, number(int, 1), "How many outcomes are committed at the latest."),
    Setting(
        "FLEET_LOOKAHEAD",
        None,
        number(int, 0),
        "How many requests a worker holds ahead of those it downloads. Unset: `CONCURRENT_REQUESTS`, "
        "or 0 when that is 1 (strict order).",
    ),
    Setting(
        "FLEET_WORKER_TIMEOUT",
        30.0,
        number(float, 0.5),
        "Seconds of silence after which a worker is given up and what it held goes to others.",
    ),
    Setting(
        "FLEET_MAX_ATTEMPTS",
        5,
        number(int, 1),
        "How many workers may die holding a request before it is kept as *dead*.",
    ),
    Setting(
        "FLEET_MAX_RUNTIME",
        3600.0,
        number(float, 1),
        "Seconds a request may take, from its download to the end of its callback, "
        "before it is given up as *dead*.",
    ),
    Setting(
        "FLEET_ON_FINISH",
        "clear",
        choice("clear", "keep"),
        "Whether a finished crawl that is started again forgets what it has seen (`clear`) or "
        "fetches only what is new (`keep`).",
        alias="SCHEDULER_PERSIST",
    ),
    Setting(
        "FLEET_ORDER",
        None,
        choice("lifo", "fifo"),
        "Order among requests of equal priority. Unset: as Scrapy's queue settings say, "
        "that is the newest first.",
    ),
    Setting(
        "FLEET_DURABILITY",
        "full",
        choice("full", "normal"),
        "SQLite: `full` survives a power cut, `normal` only a killed process.",
    ),
    Setting(
        "FLEET_KNOWN_URLS",
        100_000,
        number(int, 0),
        "How many URLs a worker remembers to drop repeated links early. 0 switches it off.",
    ),
    Setting(
        "FLEET_SEEN",
        "exact",
        choice("exact", "bloom", "rolling", "off"),
        "How the crawl knows what it has met: `exact` never errs; `bloom` takes a fifth of the memory, and "
        "takes a few new URLs for known ones; `rolling` forgets what it has not met for some time; `off` "
        "filters nothing. See [What a crawl has seen](seen.md).",
    ),
    Setting(
        "FLEET_SEEN_CAPACITY",
        None,
        number(int, 1, most=10**10),
        "How many URLs are expected. A Bloom filter is made for so many. Beyond it the crawl goes on, at a "
        "cost that is told once. Unset: 1,000,000 for `bloom`.",
    ),
    Setting(
        "FLEET_SEEN_ERROR",
        0.001,
        share,
        "`bloom`: the share of new URLs that may be taken for known ones, and so are never fetched, at most.",
    ),
    Setting(
        "FLEET_SEEN_WINDOW",
        7 * 86400.0,
        duration,
        "`rolling`: what has not been met for this time is forgotten. Seconds, or as `90s`, `15m`, `12h`, "
        "`7d`, `2w`.",
    ),
    Setting(
        "FLEET_SEEN_HOT",
        1,
        number(int, 1, most=1000),
        "`rolling`: what is met again and again is kept for so many windows. 1: no longer than all else.",
    ),
    Setting(
        "FLEET_BACKOFF",
        5.0,
        seconds,
        "Seconds that a host is left alone by the whole fleet when it refuses (429, 503) without a "
        "`Retry-After`, or does not answer; twice as long every time until it answers as it should.",
    ),
    Setting("FLEET_BACKOFF_MAX", 600.0, seconds, "The longest of these times, in seconds."),
    Setting(
        "FLEET_BREAKER",
        10,
        number(int, 0),
        "After so many downloads without any answer, in a row, a host is only probed, one request at a "
        "time. 0: never.",
    ),
    Setting(
        "FLEET_HOST_PATIENCE",
        3600.0,
        seconds,
        "A host that has given no answer for so many seconds, and is probed without success, is given up: "
        "what waits for it is kept as *dead*.",
    ),
    Setting(
        "FLEET_MAX_IDLE_TIME",
        0.0,
        seconds,
        "Spiders fed with tasks end when the whole crawl has had no work for so many seconds. 0: never.",
        alias="MAX_IDLE_TIME_BEFORE_CLOSE",
    ),
    Setting(
        "FLEET_ROBOTS_MAX_AGE",
        86400.0,
        seconds,
        "Seconds after which a robots.txt, which one worker fetches for all, is fetched again.",
    ),
)

_BY_NAME = {setting.name: setting for setting in TABLE}


class Options(Struct, frozen=True, kw_only=True):
    """The settings of one worker, read and checked."""

    url: str | None
    crawl: str
    jobdir: str | None
    commit_interval: float
    commit_size: int
    capacity: int
    lookahead: int
    worker_timeout: float
    max_runtime: float
    durability: Literal["full", "normal"]
    known_urls: int
    robots_max_age: float
    max_idle_time: float
    filtered: bool
    urls_expected: float
    """When there are more, it is told what they cost."""
    seeds_apart: bool
    remarks: tuple[str, ...]
    plan: Plan


_OPTIONS: WeakKeyDictionary[Crawler, Options | FleetError] = WeakKeyDictionary()


def remember(crawler: Crawler, options: Options | FleetError) -> None:
    """Keep what the add-on read, since it changes some settings; an error is told when the spider opens."""
    _OPTIONS[crawler] = options


def is_known(crawler: Crawler) -> bool:
    """Whether an add-on has read this crawler's settings."""
    return crawler in _OPTIONS


def of(crawler: Crawler) -> Options:
    """The options of a crawler's worker."""
    options = _OPTIONS.get(crawler)
    if options is None:
        raise SettingError('The scheduler needs the add-on: set ADDONS = {"scrapy_fleet.Addon": 500}.')
    if isinstance(options, FleetError):
        raise options
    return options


def read(settings: BaseSettings, spider: type[Spider]) -> Options:
    """Read and check all settings; a wrong one raises :class:`SettingError`, naming it."""
    check_names(settings)
    sequence = order.read(settings, _get(settings, "FLEET_ORDER"))
    plan = _plan(settings, spider, lifo=sequence.lifo)
    capacity = settings.getint("CONCURRENT_REQUESTS") or 1000
    lookahead = _get(settings, "FLEET_LOOKAHEAD")
    return Options(
        url=_get(settings, "FLEET_URL"),
        crawl=_get(settings, "FLEET_CRAWL") or spider.name,
        jobdir=settings.get("JOBDIR"),
        commit_interval=_get(settings, "FLEET_COMMIT_INTERVAL"),
        commit_size=_get(settings, "FLEET_COMMIT_SIZE"),
        capacity=capacity,
        lookahead=lookahead if lookahead is not None else capacity if capacity > 1 else 0,
        worker_timeout=_get(settings, "FLEET_WORKER_TIMEOUT"),
        max_runtime=_get(settings, "FLEET_MAX_RUNTIME"),
        durability=_get(settings, "FLEET_DURABILITY"),
        known_urls=_get(settings, "FLEET_KNOWN_URLS"),
        robots_max_age=_get(settings, "FLEET_ROBOTS_MAX_AGE"),
        max_idle_time=_get(settings, "FLEET_MAX_IDLE_TIME"),
        filtered=plan.seen.kind != "off",
        urls_expected=_urls_expected(settings, plan.seen),
        seeds_apart=sequence.seeds_apart,
        remarks=sequence.remarks,
        plan=plan,
    )


def get(settings: BaseSettings, name: str) -> Any:
    """One setting, for what runs without the add-on."""
    return _get(settings, name)


def _get(settings: BaseSettings, name: str) -> Any:
    setting = _BY_NAME[name]
    value = settings.get(name)
    if value is None and setting.alias and settings.get(setting.alias) is not None:
        if name == "FLEET_ON_FINISH":
            return "keep" if settings.getbool(setting.alias) else "clear"
        return checked(setting.alias, settings.get(setting.alias), setting.parse)
    if value is None:
        return setting.default
    return checked(name, value, setting.parse)


def check_names(settings: BaseSettings) -> None:
    for name in settings:
        if name.startswith("FLEET_") and name not in _BY_NAME:
            raise unknown(name, [*_BY_NAME])


def _plan(settings: BaseSettings, spider: type[Spider], *, lifo: bool) -> Plan:
    rule = pacing.rule(settings, spider)
    return Plan(
        rule=rule,
        slots=pacing.slot_rules(settings, rule),
        auto=pacing.auto(settings),
        backoff=Backoff(
            first=_get(settings, "FLEET_BACKOFF"),
            most=_get(settings, "FLEET_BACKOFF_MAX"),
            failures=_get(settings, "FLEET_BREAKER"),
            patience=_get(settings, "FLEET_HOST_PATIENCE"),
        ),
        lifo=lifo,
        max_attempts=_get(settings, "FLEET_MAX_ATTEMPTS"),
        keep_seen=_get(settings, "FLEET_ON_FINISH") == "keep",
        seen=seen_plan(settings),
    )


def seen_plan(settings: BaseSettings, kind: SeenKind | None = None) -> SeenPlan:
    """How the crawl is to know what it has met: of this kind, or of the one that the settings ask for."""
    return SeenPlan(
        kind=kind or _seen_kind(settings),
        capacity=_get(settings, "FLEET_SEEN_CAPACITY") or SeenPlan().capacity,
        error=_get(settings, "FLEET_SEEN_ERROR"),
        window=_get(settings, "FLEET_SEEN_WINDOW"),
        hot=_get(settings, "FLEET_SEEN_HOT"),
    )


def _seen_kind(settings: BaseSettings) -> SeenKind:
    """As FLEET_SEEN says, or DUPEFILTER_CLASS if that stands for one of them; any other class is refused."""
    from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
    from scrapy.utils.misc import load_object

    asked: SeenKind = _get(settings, "FLEET_SEEN")
    setting = settings["DUPEFILTER_CLASS"]
    if (chosen := load_object(setting)) is RFPDupeFilter:
        return asked
    # Of ours, told by what they have, no subclass is meant: nobody would call what it adds.
    means: SeenKind | None = "off" if chosen is BaseDupeFilter else vars(chosen).get("fleet_seen")
    if means is None:
        raise SettingError(
            f"DUPEFILTER_CLASS = {setting!r} cannot be used: what was seen is kept in the crawl's store. "
            "To say which requests are the same, set REQUEST_FINGERPRINTER_CLASS; "
            "to choose how they are known, set FLEET_SEEN; to filter none, set it to 'off'."
        )
    if settings.get("FLEET_SEEN") is not None and asked != means:
        raise SettingError(
            f"FLEET_SEEN = {asked!r} and DUPEFILTER_CLASS = {setting!r}, which means {means!r}, cannot both "
            "be followed. Leave out DUPEFILTER_CLASS."
        )
    return means


def _urls_expected(settings: BaseSettings, seen: SeenPlan) -> float:
    said = _get(settings, "FLEET_SEEN_CAPACITY") is not None
    return seen.capacity if seen.kind == "bloom" or (said and seen.kind == "exact") else math.inf


def store_path(url: str | None, crawl: str, jobdir: str | None = None) -> Path:
    """The SQLite file of a crawl."""
    file = f"{quote(crawl, safe=' ()+,=@[]')}.db"
    if url is None:
        return Path(jobdir, "fleet.db") if jobdir else _data_folder() / "fleet" / file
    place = re.sub(r"^/{4,}", "///", url.removeprefix("sqlite:"))
    path = Path(
        place.removeprefix("//").removeprefix("/") if place.startswith("///.") else place.removeprefix("//")
    )
    return path if path.suffix == ".db" and not path.is_dir() else path / file


def _data_folder() -> Path:
    """Scrapy's own: ``.scrapy`` beside ``scrapy.cfg``, wherever in the project we are."""
    from scrapy.exceptions import NotConfigured
    from scrapy.utils.project import project_data_dir

    try:
        return Path(project_data_dir())
    except NotConfigured:  # not in a project, or one that has no scrapy.cfg
        return Path(".scrapy")


def open_store(
    url: str | None,
    crawl: str,
    *,
    jobdir: str | None = None,
    durability: Literal["full", "normal"] = "full",
    create: bool = True,
) -> Store:
    """Open the store that a URL names. Drivers are imported only where they are used."""
    scheme = url.partition(":")[0] if url else "sqlite"
    if scheme == "sqlite":
        from scrapy_fleet.store.sqlite import SqliteStore

        return SqliteStore(store_path(url, crawl, jobdir), crawl, durability=durability, create=create)
    if scheme == "memory":
        from scrapy_fleet.store.memory import MemoryStore

        return MemoryStore(crawl)
    assert url is not None
    if scheme.startswith(("redis", "valkey")) or scheme == "unix":
        try:
            from scrapy_fleet.store.redis import SCHEMES, RedisStore
        except ModuleNotFoundError as error:
            if error.name != "redis":
                raise
            raise StoreError(
                f"FLEET_URL = {shown(url)!r} needs the package redis: pip install scrapy-fleet[redis]"
            ) from None
        if scheme in SCHEMES:
            return RedisStore(url, crawl, shown=shown(url), create=create)
    raise StoreError(
        f"FLEET_URL = {shown(url)!r}: there is no store for {scheme!r}. "
        "Use sqlite:///folder, sqlite:///file.db, redis://host:6379/0 or memory:"
    )
