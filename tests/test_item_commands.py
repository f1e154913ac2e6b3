"""``items`` and ``stats``: what comes out of a crawl."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from scrapy_fleet.crawl.plain import pack
from scrapy_fleet.model import ItemGroup
from scrapy_fleet.ops.cli import main
from tests.anywhere import KINDS, Anywhere, a_crawl
from tests.commands import FLEET, environment

RICH: dict[str, Any] = {
    "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "took": timedelta(seconds=1.5),
    "price": Decimal("9.90"),
    "id": UUID(int=1),
    "raw": b"text",
    "image": b"\xff\x00",
    "tags": {"b", "a"},
    "pair": (1, 2),
    "odd": float("nan"),
    "half": "\ud800",
    "big": 2**70,
    "by": {1: "one", (2, 3): "two"},
    "none": None,
}
AS_JSON: dict[str, Any] = {
    "when": "2026-01-02T03:04:05+00:00",
    "day": "2026-01-02",
    "took": 1.5,
    "price": "9.90",
    "id": "00000000-0000-0000-0000-000000000001",
    "raw": "text",
    "image": {"base64": "/wA="},
    "tags": ["a", "b"],
    "pair": [1, 2],
    "odd": "nan",
    "half": "\ud800",
    "big": 2**70,
    "by": {"1": "one", "[2, 3]": "two"},
    "none": None,
}


@pytest.fixture(params=KINDS)
def crawl(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Anywhere]:
    with a_crawl(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Anywhere]:
    """A crawl for what does not depend on the store."""
    with a_crawl("sqlite", tmp_path) as made:
        yield made


def keep(crawl: Anywhere, *items: dict[str, Any]) -> None:
    crawl.commit(items=tuple(pack(item, "item") for item in items))


def pages(*numbers: int) -> list[dict[str, Any]]:
    return [{"page": number} for number in numbers]


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def end_if_it_hangs(process: subprocess.Popen[Any]) -> None:
    timer = threading.Timer(120, process.kill)
    timer.daemon = True
    timer.start()


def test_items_are_printed_as_lines_of_json(crawl: Anywhere) -> None:
    keep(crawl, *pages(1, 2, 3), {"title": "Größe"})
    assert lines(crawl.said("items")) == [*pages(1, 2, 3), {"title": "Größe"}]
    assert lines(crawl.said("items", "--after", "1", "--limit", "2")) == pages(2, 3)
    assert lines(crawl.said("items", "--limit", "1", "--json")) == [{"number": 1, "item": {"page": 1}}]


def test_what_json_lacks_is_written_in_its_usual_form(one: Anywhere) -> None:
    keep(one, RICH)
    assert lines(one.said("items")) == [AS_JSON]


def test_a_table_has_the_columns_of_all_items(one: Anywhere, tmp_path: Path) -> None:
    keep(one, {"a": 1, "b": "x,\ny"}, {"b": None, "c": ["l", 2]}, {"a": True, "d": "\ud800"})
    table = tmp_path / "table.csv"
    one.said("items", "--format", "csv", "--output", str(table))
    rows = list(csv.reader(io.StringIO(table.read_text())))
    assert rows == [
        ["a", "b", "c", "d"],
        ["1", "x,\ny", "", ""],
        ["", "", '["l", 2]', ""],
        ["true", "", "", "\\ud800"],
    ]
    assert one.said("items", "--format", "csv", "--fields", "c, a").splitlines()[:2] == ["c,a", ",1"]


def test_a_file_is_replaced_when_the_new_one_is_complete(one: Anywhere, tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text("old\n")
    keep(one, *pages(1, 2))
    one.said("items", "--output", str(file))
    assert lines(file.read_text()) == pages(1, 2)
    assert [path.name for path in tmp_path.iterdir() if "items" in path.name] == ["items.jsonl"]


def test_processors_of_a_group_share_the_items(crawl: Anywhere) -> None:
    keep(crawl, *pages(1, 2, 3))
    assert lines(crawl.said("items", "--group", "db", "--limit", "2")) == pages(1, 2)
    assert crawl.answer("items", "--groups") == {
        "crawl": crawl.name,
        "items": 3,
        "groups": [{"name": "db", "left": 1, "taken": 0}],
    }
    assert "db        1      0" in crawl.said("items", "--groups")
    assert lines(crawl.said("items", "--group", "db", "--trim")) == pages(3)
    assert crawl.said("items", "--group", "db") == ""
    assert crawl.store.items() == []
    assert crawl.answer("items", "--trim") == {"crawl": crawl.name, "removed": 0}
    assert "is forgotten" in crawl.said("items", "--group", "db", "--forget")
    assert crawl.store.item_groups() == []


def test_what_a_dead_consumer_had_comes_to_another(crawl: Anywhere) -> None:
    keep(crawl, *pages(1, 2))
    crawl.store.take_items("db", "dead", 1)
    assert lines(crawl.said("items", "--group", "db")) == pages(2)
    # The same name gets its own back at once, others when its time is over.
    assert lines(crawl.said("items", "--group", "db", "--consumer", "dead")) == pages(1)
    crawl.store.drop_item_group("db")
    crawl.store.take_items("db", "dead", 2)
    assert lines(crawl.said("items", "--group", "db", "--timeout", "0.001", "--limit", "2")) == pages(1, 2)


def test_what_could_not_be_written_is_not_acknowledged(one: Anywhere) -> None:
    keep(one, *pages(1))
    words = ["items", one.name, "--url", one.url, "--group", "db"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" > /dev/full', "sh", *FLEET, *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr == "scrapy-fleet: The output cannot be written: No space left on device.\n"
    assert one.store.item_groups() == [ItemGroup("db", 0, 1)]


def test_items_that_cannot_be_read_are_told_and_left_out(one: Anywhere) -> None:
    one.commit(items=(b"\x80\x04cos\nsystem\n.", pack({"page": 1}, "item"), pack("text", "item"), b""))
    told = io.StringIO()
    for words in (("items",), ("items", "--group", "db")):
        with redirect_stderr(told):
            code = main([*words, one.name, "--url", one.url, "--output", str(Path(one.url[7:]) / "out")])
        assert code == 1
    said = told.getvalue()
    assert "item 1 cannot be read" in said
    assert "item 3 cannot be read: what is stored is no item" in said
    assert "3 items cannot be read and were left out" in said
    assert one.store.item_groups() == [ItemGroup("db", 0, 0)]


def test_following_ends_with_the_crawl(crawl: Anywhere) -> None:
    keep(crawl, *pages(1))
    with subprocess.Popen(
        [*FLEET, "items", crawl.name, "--url", crawl.url, "--follow"],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        end_if_it_hangs(process)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"page": 1}
        keep(crawl, *pages(2))
        assert json.loads(process.stdout.readline()) == {"page": 2}
        crawl.commit(items=(pack({"page": 3}, "item"),), seeded=True, leave=True, finish=True)
        assert lines(process.stdout.read()) == pages(3)
    assert process.returncode == 0


def test_a_processor_that_follows_can_be_interrupted(one: Anywhere, tmp_path: Path) -> None:
    file = tmp_path / "taken.jsonl"
    keep(one, *pages(1))
    command = [
        *FLEET,
        "items",
        one.name,
        "--url",
        one.url,
        "--follow",
        "--group",
        "db",
        "--output",
        str(file),
    ]
    with subprocess.Popen(command, env=environment()) as process:
        end_if_it_hangs(process)
        while one.store.item_groups() != [ItemGroup("db", 0, 0)]:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert lines(file.read_text()) == pages(1)
    keep(one, *pages(2))
    one.said("items", "--group", "db", "--output", str(file))
    assert lines(file.read_text()) == pages(1, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--format csv --follow", "add --fields"),
        ("--format csv --json", "not with --format csv"),
        ("--fields a", "--fields goes with --format csv"),
        ("--consumer me", "--consumer needs --group"),
        ("--forget", "--forget needs --group"),
        ("--group g --after 3", "--after does not go with --group"),
        ("--groups --follow", "--groups stands alone"),
        ("--trim --follow", "--trim stands alone"),
        ("--timeout 0", "above 0"),
        ("--limit -1", "0 or more"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["items", "any", *words.split()])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_group_that_is_not_there_is_told(one: Anywhere, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["items", one.name, "--url", one.url, "--group", "nobody", "--forget"]) == 2
    assert "No group 'nobody'" in capsys.readouterr().err


def test_counters_of_all_workers(crawl: Anywhere) -> None:
    assert "has counted anything yet" in crawl.said("stats")
    crawl.commit(stats={"pages": 2, "seconds": 0.25})
    crawl.commit(stats={"pages": 1234})
    answer = crawl.answer("stats")
    assert answer["stats"] == {"pages": 1236, "seconds": 0.25}
    assert (answer["crawl"], answer["run"]) == (crawl.name, 1)
    assert [line.split() for line in crawl.said("stats").splitlines()] == [
        ["counter", "value"],
        ["pages", "1,236"],
        ["seconds", "0.250"],
    ]
