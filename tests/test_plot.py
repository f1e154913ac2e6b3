"""Pictures of measurements can be read by every program, and nothing in them is cut off or covered."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import pictures
from benchmarks.canvas import Scale, show, tick, wrap
from benchmarks.plot import bars, groups, lines, stacked
from benchmarks.sampler import HTTP, OTHER, SPIDER, Sampler

SVG = "{http://www.w3.org/2000/svg}"
LONG = "scrapy-redis, with all of its shared stats and another server far away from every worker of the crawl"
WORD = "Unbreakable" * 12
SIZES = {"t": 16.0, "m": 12.0, "in": 12.0, "small": 12.0}
LETTER = 0.56
"""Of the font's size: how wide letters are on average in a wide font."""


def drawn(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def texts(picture: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    """What is written, from where to where, and how high."""
    found = []
    for each in picture.iter(f"{SVG}text"):
        kinds = each.get("class", "").split()
        size = next((SIZES[kind] for kind in kinds if kind in SIZES), 13.0)
        wide, x, y = LETTER * size * len(each.text or ""), float(each.get("x", 0)), float(each.get("y", 0))
        start = x - wide if "e" in kinds else x - wide / 2 if "mid" in kinds else x
        found.append((each.text or "", start, start + wide, y, size))
    return found


def curves(names: list[str]) -> str:
    return lines(LONG, {name: [(1, 5), (10, 7)] for name in names}, x="pages", y="seconds", note=LONG * 2)


PICTURES: dict[str, Callable[[], str]] = {
    "bars": lambda: bars(LONG, [("scrapy-fleet", 2), (LONG, 1234567), (WORD, 0)], unit="us", note=LONG * 2),
    "narrow": lambda: bars(LONG, [("scrapy-fleet", 2), (LONG, 99)], unit="%", best="lower", wide=430),
    "log": lambda: bars("Log", [("a", 0), ("b", 1e-7), (LONG, 1e9)], log=True),
    "nothing": lambda: bars("Nothing", []),
    "zeros": lambda: bars("Zeros", [("a", 0), ("b", 0.0)], log=True),
    "groups": lambda: groups(LONG, {LONG: {LONG: 1, "scrapy-fleet": 20}, "other": {LONG: 3}}, unit="x"),
    "groups log": lambda: groups("G", {"a": {"scrapy-fleet": 0.001, "b": 0}}, log=True, unit="ms"),
    "stacked": lambda: stacked(LONG, {LONG: {LONG: 1, "b": 1e-9}, "s": {"b": 700, "c": 0}}, note=LONG),
    "curves": lambda: curves([LONG, "scrapy-fleet, SQLite", *(f"peer {n}" for n in range(8))]),
    "log curves": lambda: lines("L", {"a": [(1, 3), (1e5, 0.001)]}, log_x=True, log_y=True, x="hosts"),
    "one point": lambda: lines("One", {"scrapy-fleet": [(5, 0)], "none": []}),
    "no curve": lambda: lines("None", {}),
}

every_picture = pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES.keys())


@every_picture
def test_nothing_is_cut_off(draw: Callable[[], str]) -> None:
    picture = drawn(draw())
    _, _, width, height = map(float, picture.get("viewBox", "").split())
    for text, start, end, y, size in texts(picture):
        assert start >= 0, text
        assert end <= width, text
        assert size <= y <= height - 4, text
    for bar in picture.iter(f"{SVG}rect"):
        assert float(bar.get("width", 0)) > 0
        assert float(bar.get("x", 0)) + float(bar.get("width", 0)) <= width


@every_picture
def test_no_text_covers_another(draw: Callable[[], str]) -> None:
    found = texts(drawn(draw()))
    for i, (one, start, end, y, size) in enumerate(found):
        for other, other_start, other_end, other_y, _ in found[:i]:
            apart = end <= other_start or other_end <= start or abs(y - other_y) >= 0.95 * size
            assert apart, (one, other)


@every_picture
def test_a_picture_says_what_it_shows(draw: Callable[[], str]) -> None:
    picture = drawn(draw())
    assert picture.get("role") == "img"
    assert picture.find(f"{SVG}title") is not None
    assert picture.find(f"{SVG}desc") is not None


@every_picture
def test_the_same_figures_give_the_same_bytes(draw: Callable[[], str]) -> None:
    assert draw() == draw()


def test_text_is_escaped() -> None:
    strange = '<b> & "c" \' \x00\x1b]]>'
    for text in (
        bars(strange, [(strange, 1)], unit=strange, best=strange, note=strange),
        groups(strange, {strange: {strange: 1}}, note=strange),
        lines(strange, {strange: [(0, 1)]}, x=strange, y=strange, note=strange),
        stacked(strange, {strange: {strange: 1}}, unit=strange, note=strange),
    ):
        title = drawn(text).findtext(f"{SVG}title") or ""
        assert title.startswith('<b> & "c" \'')


def test_ours_stands_out() -> None:
    rows = [("scrapy-fleet, `full`", 2.0), ("Scrapy", 1.0)]
    colours = [bar.get("class") for bar in drawn(bars("B", rows)).iter(f"{SVG}rect")]
    assert colours == ["card", "c0", "g0"]
    told = drawn(bars("B", rows, unit="pages/s")).findtext(f"{SVG}desc")
    assert told == "scrapy-fleet, full: 2 pages/s; Scrapy: 1 pages/s"


def test_bars_are_as_long_as_their_values() -> None:
    def long(**options: bool) -> list[float]:
        picture = drawn(bars("B", [("a", 1), ("b", 10), ("c", 100), ("zero", 0)], **options))  # type: ignore[arg-type]
        return [float(bar.get("width", 0)) for bar in picture.iter(f"{SVG}rect")][1:]

    short, middle, longest = long()
    assert longest == pytest.approx(10 * middle, abs=0.5)
    assert middle == pytest.approx(10 * short, abs=0.5)
    short, middle, longest = long(log=True)  # each decade is as long; what is least still has a bar
    assert longest - middle == pytest.approx(middle - short, abs=0.2)
    assert short > 10


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_what_cannot_be_drawn_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        bars("B", [("a", value)])
    with pytest.raises(ValueError, match="cannot be drawn"):
        lines("L", {"a": [(1, value)]})


def test_a_curve_has_no_zero_on_a_logarithmic_axis() -> None:
    with pytest.raises(ValueError, match="on a logarithmic axis: 0"):
        lines("L", {"a": [(1, 0)]}, log_y=True)


def test_figures_are_short() -> None:
    values = [0, 0.0, 0.00042, 0.054, 1, 2.187, 9.999, 42.04, 99.97, 1234.5]
    assert [show(value) for value in values] == [
        *("0", "0", "0.00042", "0.054", "1", "2.19", "10.0", "42.0", "100", "1,234"),
    ]
    assert [tick(value) for value in (0.1, 100, 1000, 2500, 1e6)] == ["0.1", "100", "1k", "2.50k", "1M"]


def test_ticks_are_round() -> None:
    assert Scale(0, 270, 0, 1, False).ticks() == [0, 100, 200]
    assert Scale(1, 5000, 0, 1, True).ticks() == [1, 10, 100, 1000]
    assert Scale(3, 12, 0, 1, True).ticks() == [3, 5, 7, 10]


def test_lines_are_broken() -> None:
    assert wrap("one two three", 60, 13) == ["one two", "three"]
    assert "".join(wrap(WORD, 100, 13)) == WORD
    assert wrap("", 100, 13) == []


def measured() -> dict[str, Any]:
    def runs(**figures: float) -> list[dict[str, float]]:
        return [figures, figures]

    speeds = {side: runs(pages_per_second=200) for side in ("memory", "jobdir", "jobdir-sqlite", "fleet")}
    losses = {side: runs(lost=5, pages=1000, at=300) for side in ("jobdir", "jobdir-sqlite", "peer", "fleet")}
    near = {"fleet": runs(pages_per_second=100), "peer": runs(pages_per_second=7)}
    sizes = {side: {"waiting": 71.0, "waiting_referer": 140.0, "seen": 8.0} for side in ("fleet", "peer")}
    far = {"fleet": runs(pages_per_second=100)}  # without scrapy-redis
    return {
        "date": "2020-01-02",
        "crawl": {"runs": {"links": speeds}},
        "loss": {"kills": {"tree": losses}},
        "fleet": {
            "runs": {"0": near, "5": far},
            "server": "Redis 1",
            "memory": {"Redis 1": sizes},
            "records": 9,
        },
    }


def test_the_readme_gets_its_pictures(tmp_path: Path) -> None:
    made = pictures.keep(measured(), tmp_path)
    assert [each.name for each in made] == list(pictures.MAKERS)
    for each in made:
        assert drawn(each.read_text()).get("width") == str(pictures.HALF)


def test_a_part_that_was_not_measured_leaves_its_picture(tmp_path: Path) -> None:
    old = tmp_path / "readme-loss.svg"
    old.write_text("old")
    results = measured()
    del results["loss"]
    assert old not in pictures.keep(results, tmp_path)
    assert old.read_text() == "old"


def busy(name: str, inner: Callable[[], None] | None = None) -> tuple[Callable[[Sampler], None], CodeType]:
    """A function of a module with this name that works until it was looked at a few times."""
    code = "def work(sampler):\n while sampler.looks < 6:\n  inner() if inner else sum(range(500))\n"
    module: dict[str, Any] = {"__name__": name, "inner": inner}
    exec(compile(code, f"{name}.py", "exec"), module)
    return module["work"], module["work"].__code__


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such timers")
@pytest.mark.parametrize(
    ("module", "group"),
    [
        ("scrapy_fleet.frontier", "scrapy-fleet"),
        ("scrapy.core.engine", "Scrapy"),
        ("scrapy.core.downloader.handlers.http11", HTTP),
        ("twisted.internet.defer", HTTP),
        ("scrapyard", OTHER),
    ],
)
def test_time_is_given_to_who_used_it(module: str, group: str) -> None:
    work, _ = busy(module)
    with Sampler(test_ours_stands_out.__code__) as sampler:
        work(sampler)
    assert {name for name, seconds in sampler.seconds.items() if seconds} <= {group, OTHER}
    assert sampler.seconds[group] > 0


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such timers")
def test_what_the_spider_calls_is_the_spiders() -> None:
    inner, _ = busy("scrapy.http.response")
    outer, callback = busy("shop.spiders", lambda: inner(sampler))
    with Sampler(callback) as sampler:
        outer(sampler)
    assert sampler.seconds[SPIDER] > 0
    assert "Scrapy" not in sampler.seconds


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such timers")
def test_the_innermost_code_counts() -> None:
    inner, _ = busy("twisted.internet.defer")
    outer, _ = busy("scrapy.core.engine", lambda: inner(sampler))
    with Sampler(test_ours_stands_out.__code__) as sampler:
        outer(sampler)
    assert sampler.seconds[HTTP] > 0
    assert "Scrapy" not in sampler.seconds
