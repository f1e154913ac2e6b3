"""The commands, run as users run them, on real crawls."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scrapy_fleet.crawl.codec import describe
from scrapy_fleet.errors import Unreadable
from scrapy_fleet.model import Entry
from scrapy_fleet.ops.entries import in_order
from scrapy_fleet.ops.site import Shape, running
from tests.commands import (
    FLEET,
    SCRAPY_FLEET,
    Crawl,
    crawl,
    data,
    entry,
    entry_points,
    environment,
    project,
    run,
)


@pytest.fixture
def news(tmp_path: Path) -> Crawl:
    """The one crawl of a folder."""
    return crawl(tmp_path / ".scrapy" / "fleet" / "news.db", "news")


def started(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """A command that is not waited for. It gathers what it prints, as it would for its users."""
    pipe = subprocess.PIPE
    env = {name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen([*FLEET, *words], cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True)


# Loading


def test_help_loads_neither_scrapy_nor_rich(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom scrapy_fleet.ops.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'scrapy', 'twisted', 'rich', 'sqlite3'}))"
    )
    done = run([sys.executable, "-c", code], cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(name in done.stdout for name in ("status", "hosts", "peek", "dead", "doctor", "demo"))


def test_scrapys_own_commands_pay_nothing_for_ours(tmp_path: Path) -> None:
    code = (
        "import sys, scrapy.cmdline\nbefore = set(sys.modules)\nimport scrapy_fleet.ops.command as command\n"
        "command.Command().short_desc()\nprint(sorted(set(sys.modules) - before))"
    )
    done = run([sys.executable, "-c", code], cwd=tmp_path)
    assert done.stdout.strip() == "['scrapy_fleet', 'scrapy_fleet.ops', 'scrapy_fleet.ops.command']"


# Status and hosts


def test_status(news: Crawl, tmp_path: Path) -> None:
    [found] = data("status", cwd=tmp_path)["crawls"]
    assert found["crawl"] == "news"
    assert found["status"] == "running"
    assert found["counts"] == {"accepted": 6, "waiting": 2, "leased": 1, "done": 1, "dead": 2, "feeding": 0}
    assert found["seen"] == 6
    assert [(w["id"], w["leased"]) for w in found["workers"]] == [("w-1", 1)]
    assert {slot["name"] for slot in found["slots"]} == {"a.example", "b.example"}
    assert set(found) == {
        *("url", "crawl", "run", "status", "counts", "seen", "items", "slot_count", "slots"),
        *("workers", "stats", "mode", "limit", "rate"),
    }
    text = run(FLEET, "status", "news", cwd=tmp_path).stdout
    assert "accepted 6 = 2 waiting + 1 leased + 1 done + 2 dead" in text
    assert "w-1" in text


def test_status_of_several_crawls_is_a_line_each(news: Crawl, tmp_path: Path) -> None:
    crawl(news.path.with_name("shops.db"), "shops")
    (news.path.parent / "other.db").write_text("not ours")
    lines = run(FLEET, "status", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["crawl", "news", "shops"]
    assert [found["crawl"] for found in data("status", cwd=tmp_path)["crawls"]] == ["news", "shops"]
    failed = run(FLEET, "hosts", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr == (
        "scrapy-fleet: There are several crawls in .scrapy/fleet; name one of them: news, shops.\n"
    )


def test_a_crawl_whose_workers_are_all_silent_has_stopped(tmp_path: Path) -> None:
    made = Crawl(tmp_path / "old.db", "old", clock=lambda: time.monotonic() - 1000)
    made.add(entry("http://a.example/"))
    [found] = data("status", "--url", "old.db", cwd=tmp_path)["crawls"]
    assert found["status"] == "stopped"
    assert "silent" in run(FLEET, "status", "--url", "old.db", cwd=tmp_path).stdout


def test_hosts(news: Crawl, tmp_path: Path) -> None:
    found = data("hosts", "--limit", "1", cwd=tmp_path)
    assert (found["crawl"], found["host_count"]) == ("news", 2)
    [host] = found["hosts"]
    assert set(host) == {
        *("name", "waiting", "leased", "done", "delay", "concurrency", "latency", "next_in"),
        *("reason", "robots", "override"),
    }
    text = run(FLEET, "hosts", "--limit", "1", cwd=tmp_path).stdout
    assert host["name"] in text
    assert "and 1 host more" in text


def test_watch_ends_with_the_crawl(news: Crawl, tmp_path: Path) -> None:
    with started("status", "--watch", "--json", cwd=tmp_path) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["status"] == "running"
        news.leave()
        other = Crawl(news.path, "news")
        other.settle(other.lease(10))
        other.leave(finish=True)
        last = watching.stdout.read().splitlines()[-1]
    assert json.loads(last)["status"] == "finished"
    assert watching.returncode == 0


def test_ctrl_c_ends_a_watch_without_a_word(news: Crawl, tmp_path: Path) -> None:
    with started("status", "--watch", cwd=tmp_path) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert "running  waiting 2  leased 1  done 1  dead 2" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.stderr.read() == ""
    assert watching.returncode == 130


# Peek


def test_peek_shows_the_order_of_one_host(tmp_path: Path) -> None:
    made = Crawl(tmp_path / "x.db", "x")
    made.add(
        entry("http://a.example/1"),
        entry("http://a.example/2", priority=5),
        entry("http://a.example/3", seed=True),
        entry("http://a.example/4", priority=-1),
        entry("http://a.example/5"),
    )
    shown = [e["url"] for e in data("peek", "--url", "x.db", "--host", "a.example", cwd=tmp_path)["entries"]]
    overall = [e["url"] for e in data("peek", "--url", "x.db", cwd=tmp_path)["entries"]]
    handed_out = [describe(lease.payload)["url"] for lease in made.lease(10)]
    assert shown == overall == handed_out


def test_peek_merges_hosts_by_priority_and_in_turn(tmp_path: Path) -> None:
    made = Crawl(tmp_path / "x.db", "x")
    made.add(
        *(
            entry(f"http://{host}/{n}", host, priority=n % 3)
            for host in ("a.example", "b.example", "c.example")
            for n in range(9)
        )
    )
    rows = list(in_order(made.store, 20))
    leases = made.lease(20)
    assert [row.priority for row in rows] == [lease.priority for lease in leases]
    turns = [row.slot for row in rows[:9]]
    assert all(set(turns[n : n + 3]) == {"a.example", "b.example", "c.example"} for n in (0, 3, 6))


def test_peek_at_leased_requests_names_the_worker(news: Crawl, tmp_path: Path) -> None:
    found = data("peek", "--kind", "leased", cwd=tmp_path)
    assert found["kind"] == "leased"
    assert [e["worker"] for e in found["entries"]] == ["w-1"]
    assert "w-1" in run(FLEET, "peek", "--kind", "leased", cwd=tmp_path).stdout
    assert run(FLEET, "peek", "--host", "no.example", cwd=tmp_path).stdout == (
        "No waiting requests of no.example in crawl 'news'.\n"
    )


def test_what_cannot_be_read_is_shown_and_steers_no_terminal(tmp_path: Path) -> None:
    made = Crawl(tmp_path / "x.db", "x")
    made.add(Entry("a\x1b[2J", b"\x01garbage"), Entry("b", b""))
    made.settle(made.lease(2), dead="red\x1b[31m")
    done = run(FLEET, "dead", "--url", "x.db", cwd=tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "red\\x1b[31m" in done.stdout
    assert all("unreadable" in e for e in data("dead", "--url", "x.db", cwd=tmp_path)["entries"])


def test_describe_reads_a_payload_without_its_spider() -> None:
    stored = entry("http://a.example/?q=1", callback="parse_item", method="PUT", meta={"depth": 3}).payload
    assert describe(stored) == {
        "method": "PUT",
        "url": "http://a.example/?q=1",
        "callback": "parse_item",
        "errback": None,
    }
    for damaged in (b"", b"\x01", b"\x03abc", b"\x01\x90", b"\x01\x92\x01\x02", stored[:-1]):
        with pytest.raises(Unreadable):
            describe(damaged)


def test_a_reader_that_has_seen_enough_is_no_error(news: Crawl, tmp_path: Path) -> None:
    with started("peek", cwd=tmp_path) as peeking:
        assert peeking.stdout is not None
        assert peeking.stderr is not None
        peeking.stdout.close()
        assert peeking.stderr.read() == ""


# Dead


def test_dead_list(news: Crawl, tmp_path: Path) -> None:
    found = data("dead", cwd=tmp_path)
    assert (found["crawl"], found["dead"]) == ("news", 2)
    for item in found["entries"]:
        assert item["reason"] == "its worker died 5 times"
        assert item["url"].startswith("http://")
    text = run(FLEET, "dead", "news", "list", cwd=tmp_path).stdout
    assert "its worker died 5 times" in text
    assert "http://a.example/" in text
    assert data("dead", "--limit", "1", cwd=tmp_path)["entries"] == found["entries"][:1]


def test_dead_requeue_and_drop(news: Crawl, tmp_path: Path) -> None:
    first = data("dead", cwd=tmp_path)["entries"][0]["id"]
    wrong = run(FLEET, "dead", "requeue", str(first), "999", cwd=tmp_path)
    assert (wrong.returncode, "999" in wrong.stderr) == (2, True)
    assert news.store.snapshot().counts.dead == 2
    done = run(FLEET, "dead", "news", "requeue", str(first), cwd=tmp_path)
    assert done.stdout == "1 request of crawl 'news' will be tried again.\n"
    assert news.store.snapshot().counts.waiting == 3
    # Words may follow an option.
    answer = data("dead", "news", "--url", ".scrapy/fleet", "drop", "--all", cwd=tmp_path)
    assert answer == {"crawl": "news", "action": "drop", "count": 1}
    counts = news.store.snapshot().counts
    assert (counts.dead, counts.done) == (0, 2)
    assert run(FLEET, "dead", cwd=tmp_path).stdout == "No dead requests in crawl 'news'.\n"


def test_dead_in_a_crawl_called_list(tmp_path: Path) -> None:
    crawl(tmp_path / "list.db", "list")
    assert data("dead", "list", "requeue", "--all", "--url", "list.db", cwd=tmp_path)["count"] == 2


# Where the crawl is


@pytest.mark.parametrize(
    "words",
    [
        ("--url", "sqlite:{0}/jobs/fleet.db"),
        ("--url", "sqlite://{0}/jobs/fleet.db"),
        ("--url", "jobs/fleet.db"),
        ("--url", "jobs"),
        ("--jobdir", "jobs"),
        ("news", "--jobdir", "jobs"),
        ("-s", "JOBDIR=jobs"),
    ],
)
def test_the_place_can_be_named(words: tuple[str, ...], tmp_path: Path) -> None:
    crawl(tmp_path / "jobs" / "fleet.db", "news")
    found = data("status", *(word.format(tmp_path) for word in words), cwd=tmp_path)
    assert [c["crawl"] for c in found["crawls"]] == ["news"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hosts", "new"), "There is no crawl 'new' in .scrapy/fleet; there is: news."),
        (("hosts", "--url", "nowhere.db"), "There is no crawl at nowhere.db."),
        (("hosts", "--jobdir", "nowhere"), "There is no crawl at nowhere/fleet.db."),
        (("hosts", "other", "--url", "sqlite:.scrapy/fleet/news.db"), "There is no crawl 'other' at"),
        (("hosts", "--url", "memory:"), "can only be seen by the process that runs it"),
        (("hosts", "news", "--url", "ftp://me:secret@there/0"), "there is no store for 'ftp'"),
        (("hosts", "--url", "text.db"), "text.db is not a database"),
        (("hosts", "--url", "empty.db"), "empty.db is not a crawl"),
    ],
)
def test_errors_are_one_line(words: tuple[str, ...], message: str, news: Crawl, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("This is no database, but a text that is long enough to be one. " * 20)
    (tmp_path / "empty.db").touch()
    done = run(FLEET, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("scrapy-fleet: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("fly",),
        ("status", "one", "two"),
        ("status", "--wach"),
        ("hosts", "--limit", "0"),
        ("hosts", "--limit", "many"),
        ("peek", "--kind", "dead"),
        ("dead", "news", "revive"),
        ("dead", "news", "requeue"),
        ("dead", "news", "requeue", "1", "--all"),
        ("dead", "news", "drop", "first"),
        ("dead", "list", "1"),
        ("dead", "--everything"),
        ("status", "-s", "JOBDIR"),
    ],
)
def test_bad_arguments(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run(FLEET, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: scrapy-fleet")
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


# In a project


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return (entry_points(tmp_path_factory.mktemp("installed")),)


def test_project_settings_say_where(tmp_path: Path, installed: tuple[Path, ...]) -> None:
    made = crawl(tmp_path / "crawls" / "weekly.db", "weekly")
    crawl(made.path.with_name("daily.db"), "daily")
    here = project(tmp_path / "p", f"FLEET_URL = 'sqlite://{made.path.parent}'\nFLEET_CRAWL = 'weekly'")
    for command in (FLEET, SCRAPY_FLEET):
        for words, expected in ((), "weekly"), (("daily",), "daily"):
            found = data("hosts", *words, cwd=here / "shop", command=command, paths=installed)
            assert found["crawl"] == expected
    found = data("hosts", "-s", "FLEET_CRAWL=daily", cwd=here, command=SCRAPY_FLEET, paths=installed)
    assert found["crawl"] == "daily"


def test_a_spiders_own_settings_say_where(tmp_path: Path, installed: tuple[Path, ...]) -> None:
    crawl(tmp_path / "jobs" / "fleet.db", "news-daily")
    spider = (
        "import scrapy\nclass News(scrapy.Spider):\n    name = 'news'\n"
        f"    custom_settings = {{'JOBDIR': {str(tmp_path / 'jobs')!r}}}\n"
    )
    here = project(tmp_path / "p", "", spider)
    found = data("hosts", "news", cwd=here, command=SCRAPY_FLEET, paths=installed)
    assert found["crawl"] == "news-daily"


def test_scrapy_fleet_rejects_what_it_does_not_know(tmp_path: Path, installed: tuple[Path, ...]) -> None:
    for words in (("status", "--wach"), ("status", "a", "b"), ("dead", "news", "requeue"), ()):
        done = run(SCRAPY_FLEET, *words, cwd=tmp_path, paths=installed)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "error: " in done.stderr
    done = run(SCRAPY_FLEET, "hosts", cwd=tmp_path, paths=installed)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("scrapy-fleet: There is no crawl in .scrapy/fleet.")


def test_settings_that_cannot_be_loaded(tmp_path: Path) -> None:
    here = project(tmp_path, "raise RuntimeError('no such thing')")
    done = run(FLEET, "status", cwd=here)
    assert done.returncode == 2
    assert done.stderr == (
        "scrapy-fleet: The settings of the project cannot be read: RuntimeError('no such thing').\n"
    )


# A real crawl


def test_a_real_crawl(tmp_path: Path) -> None:
    from scrapy_fleet.ops import demo_spider

    with running(Shape("tree", pages=40, links=5, redirects=0.2, missing=0.2)) as site:
        done = run(
            [sys.executable, "-m", "scrapy", "runspider", str(demo_spider.__file__)],
            *("-a", f"url={site.start_url}", "-s", "JOBDIR=job"),
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr
    [found] = data("status", "--jobdir", "job", cwd=tmp_path)["crawls"]
    assert (found["crawl"], found["status"], found["items"]) == ("demo", "finished", 40)
    assert found["counts"]["accepted"] == found["counts"]["done"] > 40
    assert data("peek", "--jobdir", "job", cwd=tmp_path)["entries"] == []
