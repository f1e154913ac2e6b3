"""``doctor``: what is wrong with the installation, the settings or the store, and how to mend it."""

from __future__ import annotations

import json
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from scrapy_fleet.errors import FleetError
from scrapy_fleet.ops.children import environment
from scrapy_fleet.ops.place import Place, in_project, is_drop_in
from scrapy_fleet.ops.show import count, paint, plain, print_json

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

Level = Literal["ok", "warn", "fail"]
COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
KNOWN_SCRAPY = ((2, 13), (2, 19))
OLDEST_PYTHON = (3, 11)


class Check(NamedTuple):
    """One thing that was looked at. ``remedy`` says what to do, where something is wrong."""

    name: str
    level: Level
    message: str
    remedy: str | None = None
    file: str | None = None
    """The file that was looked at, if it was one."""


def doctor(place: Place, crawl: str | None, *, as_json: bool) -> int:
    checks: list[Check] = []
    for check in examine(place, crawl):
        checks.append(check)
        if not as_json:
            _print(check)
    failed = sum(check.level == "fail" for check in checks)
    if as_json:
        print_json({"ok": not failed, "checks": [check._asdict() for check in checks]})
        return 1 if failed else 0
    warned = sum(check.level == "warn" for check in checks)
    problems = [count(failed, "failure")] * bool(failed) + [count(warned, "warning")] * bool(warned)
    print(f"\n{count(len(checks), 'check')}: {' and '.join(problems) or 'all is well'}.")
    return 1 if failed else 0


def _print(check: Check) -> None:
    print(
        f"{paint(f'{check.level:<4}', COLOURS[check.level])}  {check.name}: {plain(check.message)}",
        flush=True,
    )
    if check.remedy:
        print(f"      {paint('mend it:', 'bold')} {plain(check.remedy)}", flush=True)


def examine(place: Place, crawl: str | None) -> Iterator[Check]:
    yield _python()
    yield from _scrapy()
    yield _sqlite()
    if place.settings is not None and in_project():
        yield from _project(place.settings)
    yield from _store(place, crawl)


# The installation


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check("python", "fail", f"{version} is too old.", "Use Python 3.11 or newer.")
    return Check("python", "ok", version)


def _scrapy() -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("Scrapy")
    except PackageNotFoundError:
        yield Check("scrapy", "fail", "It is not installed.", "pip install 'Scrapy>=2.13'")
        return
    release = tuple(int(part) for part in found.split(".")[:2] if part.isdecimal())
    (oldest, newest), upgrade = KNOWN_SCRAPY, "pip install --upgrade scrapy-fleet"
    if release < oldest:
        yield Check("scrapy", "fail", f"{found} is too old.", "pip install --upgrade 'Scrapy>=2.13'")
    elif release > newest:
        yield Check("scrapy", "warn", f"{found} is newer than those scrapy-fleet was tested with.", upgrade)
    else:
        yield Check("scrapy", "ok", found)
    yield _tryout()


def _tryout() -> Check:
    """A real crawl of two pages: whether all that we use inside Scrapy is there and works."""
    name, remedy = "inside", "Upgrade scrapy-fleet, or use a Scrapy from 2.13 to 2.19."
    command = [sys.executable, "-m", "scrapy_fleet.ops.tryout"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
        result = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Check(name, "fail", "A crawl of two pages in memory did not end.", remedy)
    except ValueError:
        last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
        return Check(name, "fail", f"A crawl of two pages in memory broke off: {last}", remedy)
    if result["errors"]:
        return Check(name, "fail", result["errors"][0], remedy)
    if result["reason"] != "finished" or result["items"] != 2:
        ended = f"ended as {result['reason']!r} with {result['items']} of 2 pages"
        return Check(name, "fail", f"A crawl of two pages in memory {ended}.", remedy)
    return Check(name, "ok", "a crawl of two pages in memory ended as it should")


def _sqlite() -> Check:
    from scrapy_fleet.store.sqlite.database import OLDEST_SQLITE

    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        return Check(
            "sqlite", "fail", f"Python was built with {version}; {oldest} is needed.", "Use a newer Python."
        )
    return Check("sqlite", "ok", version)


# The project


def _project(settings: BaseSettings) -> Iterator[Check]:
    from scrapy import Spider

    from scrapy_fleet import settings as fleet_settings

    addons = [
        name if isinstance(name, str) else getattr(name, "__name__", "")
        for name in settings.getdict("ADDONS")
    ]
    if any(name in ("scrapy_fleet.Addon", "scrapy_fleet.addon.Addon", "Addon") for name in addons):
        yield Check("add-on", "ok", "it is switched on for the project")
    elif is_drop_in(settings):
        yield Check("add-on", "ok", "the scheduler of scrapy_fleet.scrapy_redis brings it")
    else:
        yield Check(
            "add-on",
            "warn",
            "It is not switched on for the project (a spider may do so for itself).",
            'Put ADDONS = {"scrapy_fleet.Addon": 500} into settings.py.',
        )
    any_spider = type("AnySpider", (Spider,), {"name": "any"})
    try:
        if is_drop_in(settings):
            from scrapy_fleet.scrapy_redis.wiring import translate

            settings = settings.copy()
            translate(settings, any_spider)
        options = fleet_settings.read(settings, any_spider)
    except FleetError as error:
        yield Check("settings", "fail", str(error), "Correct it in settings.py, or where else it is set.")
        return
    yield Check("settings", "ok", "the project's FLEET_ settings are known and can be used")
    if options.durability == "full":
        yield Check("durability", "ok", "full: what is committed survives a power cut")
    else:
        yield Check(
            "durability",
            "warn",
            "normal: a killed process loses nothing, but a power cut may undo the last moments.",
            "Leave FLEET_DURABILITY out if the machine may lose power.",
        )


# The store


def _store(place: Place, crawl: str | None) -> Iterator[Check]:
    from scrapy_fleet.ops.doctor_store import examine_file, examine_folder

    if not place.has_files:
        crawl = crawl or place.crawl
        try:
            place.resolve(crawl or "any")
            place.connect("any").close()  # says what is wrong with a URL; nothing is sent
        except FleetError as error:
            yield Check("store", "fail", str(error), "Correct FLEET_URL or --url.")
            return
        from scrapy_fleet.ops.doctor_redis import examine_server

        yield from examine_server(place, crawl)
        return
    files, named = place.files(), crawl is not None or place.crawl is not None
    if named:
        try:
            place, crawl = place.resolve(crawl)
            files = [place.path(crawl)]
        except FleetError as error:
            # Of a file that is there but cannot be used, the checks below say more.
            if place.file is None or not files:
                yield Check("crawl", "fail", str(error), "Check the name, --url and --jobdir.")
                files = []
    yield from examine_folder(place.folder, files)
    for path in files:
        for check in examine_file(path, named=named or place.file is not None):
            yield check._replace(file=str(path))
