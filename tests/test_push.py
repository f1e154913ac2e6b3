"""``scrapy fleet push``, and projects whose settings are those of scrapy-redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scrapy.settings import Settings

from scrapy_fleet.model import TASKS, Batch, Plan, Row, Worker
from scrapy_fleet.ops.doctor import _project
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.base import Store
from tests import forked
from tests.commands import FLEET, environment, run
from tests.servers import required, shared_server, valkey_binary

SPIDER = """
from scrapy_fleet import FleetSpider
class News(FleetSpider):
    name = "news"
    custom_settings = {"FLEET_URL": "sqlite:own"}
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/crawls"


@contextmanager
def opened(url: str, crawl: str = "news") -> Iterator[Store]:
    store = open_store(url, crawl)
    yield store
    store.close()


def tasks(url: str) -> list[Row]:
    with opened(url) as store:
        return store.scan("waiting", slot=TASKS)


def texts(url: str) -> list[bytes]:
    return [row.payload[1:] for row in tasks(url)]


def push(url: str, *words: str, cwd: Path, given: bytes = b"", code: int = 0) -> str:
    done = forked.run(
        *FLEET[2:], "push", "news", *words, "--url", url, cwd=cwd, env=environment(), given=given
    )
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    return said


def test_tasks_from_everywhere(tmp_path: Path, url: str) -> None:
    (tmp_path / "one.txt").write_bytes(b"http://a/3\r\n\n  http://a/4\n")
    (tmp_path / "two.jsonl").write_bytes(b'{"url": "http://a/5"}\n')
    said = push(
        url, "http://a/1", "http://a/2", "-", "--new",
        "--file", "one.txt", "--file", "two.jsonl",
        cwd=tmp_path, given=b"http://a/6\n\xff\n",
    )  # fmt: skip
    assert "7 tasks pushed to crawl 'news'" in said
    assert texts(url)[:4] == [b"http://a/1", b"http://a/2", b"http://a/3", b"http://a/4"]
    assert texts(url)[4:] == [b'{"url": "http://a/5"}', b"http://a/6", b"\xff"]
    assert "1 task pushed" in push(url, cwd=tmp_path, given=b"http://a/7")
    assert len(texts(url)) == 8
    with opened(url) as store:
        assert store.snapshot().counts.feeding == 0, "it holds nothing open any longer"
    shown = run(FLEET, "peek", "news", "--url", url, cwd=tmp_path)
    assert "task http://a/1" in shown.stdout, shown


def test_the_same_task_may_be_pushed_again(tmp_path: Path, url: str) -> None:
    push(url, "http://a/1", "http://a/1", "--new", cwd=tmp_path)
    push(url, "http://a/1", cwd=tmp_path)
    assert texts(url) == [b"http://a/1"] * 3


def test_priority(tmp_path: Path, url: str) -> None:
    push(url, "later", "--new", cwd=tmp_path)
    push(url, "soon", "--priority", "5", cwd=tmp_path)
    push(url, "last", "--priority", "-5", cwd=tmp_path)
    assert [(row.payload[1:], row.priority) for row in tasks(url)] == [
        (b"soon", 5),
        (b"later", 0),
        (b"last", -5),
    ]


def test_json_is_checked(tmp_path: Path, url: str) -> None:
    said = push(
        url, "--json", "--new", cwd=tmp_path, given=b'{"url": "http://a/1"}\n{\n[1]\nhttp://a/\n', code=1
    )
    assert texts(url) == [b'{"url": "http://a/1"}', b"[1]"]
    assert "2 tasks pushed" in said
    assert "line 2: not JSON" in said
    assert "line 4: not JSON" in said


def test_a_crawl_is_not_made_by_mistake(tmp_path: Path, url: str) -> None:
    said = push(url, "http://a/", cwd=tmp_path, code=2)
    assert "no crawl 'news'" in said
    assert "cannot be read" in push(url, "--new", "--file", "nowhere.txt", cwd=tmp_path, code=2)


def test_a_finished_crawl_goes_on(tmp_path: Path, url: str) -> None:
    with opened(url) as store:
        store.join(Worker("w"), Plan(), 60)
        store.commit(Batch(worker="w", seq=1, seeded=True, leave=True, finish=True))
    assert "had finished" in push(url, "http://a/", cwd=tmp_path)
    assert texts(url) == [b"http://a/"]


def project(folder: Path, settings: str) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = project.settings\n")
    package = folder / "project"
    (package / "spiders").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "spiders" / "__init__.py").write_text("")
    (package / "spiders" / "news.py").write_text(SPIDER)
    (package / "settings.py").write_text(f"SPIDER_MODULES = ['project.spiders']\n{settings}")


def test_the_crawl_of_a_spider_can_be_fed_before_it_runs(tmp_path: Path) -> None:
    project(tmp_path, 'ADDONS = {"scrapy_fleet.Addon": 500}\n')
    done = run(FLEET, "push", "news", "http://a/1", cwd=tmp_path)
    assert done.returncode == 0, done
    assert texts(f"sqlite://{tmp_path}/own") == [b"http://a/1"]
    assert run(FLEET, "push", "nwes", "http://a/1", cwd=tmp_path).returncode == 2


def test_the_server_of_a_project_for_scrapy_redis_is_known(tmp_path: Path) -> None:
    server = shared_server(required(valkey_binary())).url
    project(
        tmp_path,
        f"SCHEDULER = 'scrapy_fleet.scrapy_redis.scheduler.Scheduler'\nREDIS_URL = {server!r}\n"
        "DUPEFILTER_CLASS = 'scrapy_fleet.scrapy_redis.dupefilter.RFPDupeFilter'\n",
    )
    name = f"fed-{tmp_path.name}"
    done = run(FLEET, "push", name, "http://a/1", "--new", cwd=tmp_path)
    assert done.returncode == 0, done
    with opened(server, name) as store:
        assert store.waiting(TASKS) == 1
        store.clear()


def test_the_doctor_knows_such_projects() -> None:
    settings = Settings(
        {
            "SCHEDULER": "scrapy_fleet.scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_fleet.scrapy_redis.dupefilter.RFPDupeFilter",
        }
    )
    checks = {check.name: check for check in _project(settings)}
    assert "scrapy_fleet.scrapy_redis brings it" in checks["add-on"].message
    assert checks["settings"].level == "ok", checks
