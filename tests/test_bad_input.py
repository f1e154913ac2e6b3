"""What cannot work says so in one clear message, without a traceback, and harms nothing.

Every crawl here is run as users run it, by ``scrapy runspider`` in a process of its own.
"""

from __future__ import annotations

import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
import scrapy

from scrapy_fleet.model import Snapshot
from scrapy_fleet.ops.site import RunningSite, Shape, running
from scrapy_fleet.store.sqlite import SqliteStore
from tests.command_line import Run
from tests.commands import Crawl, entry


def refuses(
    site: RunningSite, folder: Path, *told: str, paths: tuple[Path, ...] = (), **settings: Any
) -> str:
    """The crawl does not begin, and says why: with one error, of which these are parts."""
    before = site.arrivals()
    with Run(site, folder, settings, paths=paths) as run:
        log = run.ended()
        assert len(run.errors) == 1, log
        for part in told:
            assert part in run.errors[0], log
        assert "'finish_reason': 'fleet_error'" in log, log
        assert site.arrivals() == before
        return log


@pytest.fixture(scope="module")
def site() -> Iterator[RunningSite]:
    with running(Shape("tree", pages=60, links=4, seed=1)) as site:
        yield site


def a_crawl(path: Path, name: str = "site", pages: int = 2000) -> Crawl:
    """A crawl that was stopped: one page is done, the others wait."""
    made = Crawl(path, name)
    made.add(*(entry(f"http://127.0.0.1/p/{n}", "127.0.0.1", body=b"x" * 100) for n in range(pages)))
    made.settle(made.lease(1))
    made.leave()
    made.store.close()
    return made


def contents(path: Path) -> list[str]:
    """All that is in a database; how it is laid out in the file does not matter."""
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def look(path: Path, name: str = "site") -> Snapshot:
    with closing(SqliteStore(path, name, create=False)) as store:
        return store.snapshot()


# Settings


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://user:secret@host:3306/0", "'mysql://user:***@host:3306/0'"),
        ("amqp://:secret@[host", "'amqp://:***@[host'"),
        ("crawls/here", "'crawls/here'"),
    ],
)
def test_an_unknown_scheme(url: str, shown: str, site: RunningSite, tmp_path: Path) -> None:
    log = refuses(site, tmp_path, "FLEET_URL", shown, "there is no store for", "sqlite:///", FLEET_URL=url)
    assert "secret" not in log


def test_a_server_that_is_not_there(site: RunningSite, tmp_path: Path) -> None:
    url = "redis://user:secret@127.0.0.1:1/0"  # nobody listens there
    assert "secret" not in refuses(site, tmp_path, "127.0.0.1:1", FLEET_URL=url)


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("FLEET_COMIT_SIZE", "100", "There is no setting FLEET_COMIT_SIZE. Did you mean FLEET_COMMIT_SIZE?"),
        ("FLEET_XYZZY", "1", "There is no setting FLEET_XYZZY. There are: FLEET_URL, FLEET_CRAWL, "),
        (
            "FLEET_COMMIT_SIZE",
            "many",
            "FLEET_COMMIT_SIZE = 'many' cannot be used: it must be a whole number.",
        ),
        ("FLEET_LOOKAHEAD", "-1", "FLEET_LOOKAHEAD = '-1' cannot be used: it must be 0 or more."),
        (
            "FLEET_ON_FINISH",
            "maybe",
            "FLEET_ON_FINISH = 'maybe' cannot be used: it must be one of clear, keep.",
        ),
    ],
)
def test_a_wrong_setting(setting: str, value: str, told: str, site: RunningSite, tmp_path: Path) -> None:
    refuses(site, tmp_path, told, **{setting: value})
    assert not (tmp_path / ".scrapy").exists()


# Places


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"FLEET_URL": "sqlite:///{folder}/file/crawls"}, "The folder {folder}/file/crawls cannot be made: "),
        ({"JOBDIR": "file"}, "The folder file cannot be made: "),
        ({"FLEET_URL": "sqlite:////proc/crawl.db"}, "/proc/crawl.db cannot be opened for writing: "),
    ],
)
def test_a_place_that_cannot_be_written_to(
    settings: dict[str, str], told: str, site: RunningSite, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("here before")
    own = {name: value.format(folder=tmp_path) for name, value in settings.items()}
    refuses(site, tmp_path, told.format(folder=tmp_path), "FLEET_URL or JOBDIR", **own)
    assert (tmp_path / "file").read_text() == "here before"


def not_a_database(path: Path) -> None:
    path.write_text("once upon a time " * 1000)


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE song (name); INSERT INTO song VALUES ('la la');")


def of_another_crawl(path: Path) -> None:
    a_crawl(path, "shop", pages=10)


def of_a_newer_version(path: Path) -> None:
    a_crawl(path, pages=10)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (not_a_database, ["is not a database", "Name another file in FLEET_URL"]),
        (of_another_program, ["is a database of another program", "Name another file in FLEET_URL"]),
        (of_another_crawl, ["holds the crawl 'shop', not 'site'", "set FLEET_CRAWL"]),
        (of_a_newer_version, ["was written by a newer scrapy-fleet (format 99", "Upgrade scrapy-fleet"]),
    ],
)
def test_a_file_that_is_not_ours(
    make: Callable[[Path], None], told: list[str], site: RunningSite, tmp_path: Path
) -> None:
    path = tmp_path / "crawl.db"
    make(path)
    is_database = make is not not_a_database
    before = contents(path) if is_database else path.read_bytes()
    refuses(site, tmp_path, str(path), *told, FLEET_URL=f"sqlite:///{path}")
    assert before == (contents(path) if is_database else path.read_bytes())


def overwritten(path: Path) -> None:
    """Pages in the middle of the file are nonsense."""
    page, size = 4096, path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 3 // page * page)
        file.write(Random(1).randbytes(size // 3 // page * page))


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def cut_in_a_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1000)


@pytest.mark.parametrize("damage", [overwritten, truncated, cut_in_a_page])
def test_a_damaged_database(damage: Callable[[Path], None], site: RunningSite, tmp_path: Path) -> None:
    path = tmp_path / "crawl.db"
    a_crawl(path)
    damage(path)
    before = path.read_bytes()
    refuses(site, tmp_path, f"{path} is damaged", ".recover", FLEET_URL=f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_database_damaged_while_the_crawl_runs(site: RunningSite, tmp_path: Path) -> None:
    path = tmp_path / "crawl.db"
    made = Crawl(path, "site")
    # More than a worker keeps in its cache, and nothing that ends soon.
    made.add(*(entry(site.url(f"/gone/{n}"), "127.0.0.1", meta={"x": "y" * 2000}) for n in range(4000)))
    made.leave()
    made.store.close()
    asked = site.stats()["arrivals"]
    with Run(site, tmp_path, {"FLEET_URL": f"sqlite:///{path}", "LOG_LEVEL": "WARNING"}) as run:
        site.wait(arrivals=asked + 20)
        overwritten(path)
        run.logged(f"{path} is damaged")
        run.ended()
        assert len(run.errors) == 1, run.log
        assert ".recover" in run.errors[0]


# A full disk


def test_a_disk_that_is_full_from_the_start(site: RunningSite, tmp_path: Path) -> None:
    before = site.arrivals()
    with Run(site, tmp_path, {}, largest_file=0) as run:
        log = run.ended()
        assert len(run.errors) == 1, log
        assert ".scrapy/fleet/site.db" in run.errors[0]
        assert "'finish_reason': 'fleet_error'" in log, log
    assert site.arrivals() == before


@pytest.mark.parametrize("then", ["there is space again", "it is interrupted"])
def test_a_disk_that_fills_up(then: str, tmp_path: Path) -> None:
    path = tmp_path / "crawl.db"
    settings = {"FLEET_URL": f"sqlite:///{path}", "FLEET_WORKER_TIMEOUT": 1, "CONCURRENT_REQUESTS": 4}
    shape = Shape("tree", pages=120, links=4, seed=2, slow=1.0, delay=(0.02, 0.02))
    with running(shape) as site:
        with Run(site, tmp_path, settings) as run:
            site.wait(pages=20)
            run.limit_files(4096)
            run.logged("The crawl pauses until the store is back; nothing is lost.")
            if then == "it is interrupted":
                run.interrupt()
                log = run.ended()
                assert len(run.errors) == 1, log
                assert str(path) in run.errors[0]
                assert site.lost()
                held = look(path).counts.leased
            else:
                run.limit_files(resource.RLIM_INFINITY)
                log = run.ended()
                assert "The store is back after" in log
                assert "'finish_reason': 'finished'" in log
                assert not run.errors, log
                held = 0
        if then == "it is interrupted":
            with Run(site, tmp_path, settings) as run:
                assert "'finish_reason': 'finished'" in run.ended()
        assert not site.lost()
        assert site.repeats() <= held
        snapshot = look(path)
        assert (snapshot.status, snapshot.items) == ("finished", shape.pages)


# Scrapy


@pytest.fixture(scope="module")
def changed_scrapy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Path]:
    """A Scrapy in which something inside has another name; a folder for the path of modules."""

    def change(file: str, old: str, new: str) -> Path:
        folder = tmp_path_factory.mktemp("scrapy")
        package = folder / "scrapy"
        shutil.copytree(Path(scrapy.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc"))
        text = (package / file).read_text()
        assert old in text
        (package / file).write_text(text.replace(old, new))
        return folder

    return change


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("core/engine.py", "inprogress", "in_progress", "engine._slot.inprogress"),
        ("core/engine.py", "nextcall", "next_call", "engine._slot.nextcall"),
        ("core/engine.py", "_slot", "_state_of_spider", "engine._slot.inprogress"),
    ],
)
def test_a_scrapy_that_changed_inside(
    changed_scrapy: Callable[[str, str, str], Path],
    file: str,
    old: str,
    new: str,
    told: str,
    site: RunningSite,
    tmp_path: Path,
) -> None:
    path = tmp_path / "crawl.db"
    a_crawl(path, pages=10)
    before = contents(path)
    refuses(
        site,
        tmp_path,
        f"Scrapy {scrapy.__version__} has no {told}",
        "Upgrade scrapy-fleet",
        paths=(changed_scrapy(file, old, new),),
        FLEET_URL=f"sqlite:///{path}",
    )
    assert contents(path) == before
