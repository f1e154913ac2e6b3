"""``seen``: what a crawl has met, as users ask for it and change it, on every kind of store."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.request import fingerprint

from scrapy_fleet.keys import seed_key_of
from scrapy_fleet.model import Plan, Rule, SeenPlan
from scrapy_fleet.ops.cli import main
from tests.anywhere import KINDS, Anywhere, a_crawl, page, pages, url_of
from tests.commands import FLEET, SCRAPY_FLEET, Crawl, data, entry_points, environment, project

BLOOM = SeenPlan(kind="bloom", capacity=1000, error=0.01)


@pytest.fixture(params=KINDS)
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def news(store_kind: str, tmp_path: Path) -> Iterator[Anywhere]:
    with a_crawl(store_kind, tmp_path) as made:
        yield made


@pytest.fixture
def bloom(store_kind: str, tmp_path: Path) -> Iterator[Anywhere]:
    with a_crawl(store_kind, tmp_path, BLOOM) as made:
        yield made


def tried(crawl: Anywhere, *words: str) -> tuple[int, str]:
    """The exit code of ``seen``, and what it prints."""
    with redirect_stdout(io.StringIO()) as out:
        code = main(["seen", crawl.name, *words, "--url", crawl.url])
    return code, out.getvalue()


def refused(crawl: Anywhere, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert tried(crawl, *words) == (2, "")
    return capsys.readouterr().err


def answers(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def is_seen(crawl: Anywhere, *urls: str) -> list[bool]:
    code, out = tried(crawl, "has", *urls, "--json")
    found = [each["seen"] for each in json.loads(out)["urls"]]
    assert code == (0 if all(found) else 1)
    return found


def urls(number: int, start: int = 0) -> list[str]:
    return [f"http://a.example/{n}" for n in range(start, start + number)]


def file_of(folder: Path, *lines: str, end: str = "\n") -> str:
    file = folder / "lines.txt"
    file.write_text("\n".join(lines) + end)
    return str(file)


# Looking


def test_an_exact_filter_in_numbers(news: Anywhere) -> None:
    news.add(*pages(50))
    found = news.answer("seen")
    assert (found["crawl"], found["kind"], found["count"]) == (news.name, "exact", 50)
    assert found["error"] is found["fill"] is found["oldest"] is None
    lines = news.said("seen").splitlines()
    assert lines[0] == f"{news.name}  exact (every URL is known, by 64 bits of its fingerprint)"
    assert lines[1].startswith("  50 URLs")
    if found["bytes"] is not None:
        assert found["bytes_per_url"] == pytest.approx(found["bytes"] / 50, abs=0.01)
        assert lines[1].endswith(f": {found['bytes_per_url']:.1f} bytes a URL")


def test_a_bloom_filter_in_numbers(bloom: Anywhere) -> None:
    bloom.add(*pages(500))
    found = bloom.answer("seen")
    assert (found["kind"], found["count"], found["layers"], found["room"]) == ("bloom", 500, 1, 1000)
    assert found["plan"] == {"kind": "bloom", "capacity": 1000, "error": 0.01, "window": 604800.0, "hot": 1}
    assert found["fill"] == 0.5
    assert 0 < found["error"] < 0.01
    lines = bloom.said("seen").splitlines()
    assert lines[0] == f"{bloom.name}  bloom (made for 1,000 URLs, an error of 1 % at most)"
    assert lines[2] == "  50 % full: 1 layer, for 1,000 URLs"
    assert lines[3].startswith("  error now: less than 0.0001 %, 1 of ")
    assert lines[3].endswith("new URLs is taken for a known one, and never fetched")


def test_a_rolling_filter_in_numbers(store_kind: str, tmp_path: Path) -> None:
    with a_crawl(store_kind, tmp_path, SeenPlan(kind="rolling", window=7200.0, hot=3)) as crawl:
        crawl.add(*pages(5))
        found = crawl.answer("seen")
        assert (found["kind"], found["count"], found["generations"]) == ("rolling", 5, 1)
        assert 0 <= found["oldest"] < 600
        lines = crawl.said("seen").splitlines()
    assert lines[0].endswith(
        "  rolling (a URL is forgotten when it has not been met for 2.0 h, or 6.0 h if it was met again)"
    )
    assert lines[2].startswith("  1 generation, the oldest last met ")


def test_has(news: Anywhere) -> None:
    first, _ = pages(2)
    news.add(first, page("http://a.example/q?b=2&a=1"))
    code, text = tried(news, "has", "http://a.example/0", "http://a.example/7")
    assert (code, text) == (1, "seen      http://a.example/0\nnot seen  http://a.example/7\n")
    assert is_seen(news, "http://a.example/q?a=1&b=2#top", "http://a.example/0") == [True, True]


def test_has_says_how_sure_it_is(bloom: Anywhere) -> None:
    bloom.add(*pages(900))
    code, text = tried(bloom, "has", "http://a.example/0")
    assert code == 0
    assert "A Bloom filter may be wrong that it was seen: it is for " in text


def test_has_tells_start_requests_apart(tmp_path: Path) -> None:
    with a_crawl("sqlite", tmp_path) as crawl:
        made = page("http://a.example/", dont_filter=True)
        key = seed_key_of(fingerprint(Request("http://a.example/")), 1, 1)
        crawl.add(type(made)(made.slot, made.payload, key=key, seed=True))
        code, text = tried(crawl, "has", "http://a.example/")
    assert code == 1
    assert text.startswith("not seen  http://a.example/\n")
    assert "It was a start request of this run, which says nothing about links to it." in text


# Forgetting


def test_a_forgotten_url_is_taken_again(news: Anywhere, monkeypatch: pytest.MonkeyPatch) -> None:
    news.add(*pages(3))
    answers(monkeypatch, "n\n")
    code, text = tried(news, "forget", "http://a.example/1")
    assert code == 2
    assert text == "1 URL would be forgotten.\nForget it? [y/N] Nothing was changed.\n"
    assert is_seen(news, *urls(3)) == [True] * 3
    answers(monkeypatch, "y\n")
    code, text = tried(news, "forget", "http://a.example/1")
    assert code == 0
    assert text.splitlines()[1].endswith(
        f"1 URL of crawl {news.name!r} forgotten: it is fetched when a link to it is met again."
    )
    assert "FLEET_KNOWN_URLS" in text
    assert is_seen(news, *urls(3)) == [True, False, True]
    assert news.commit(adds=tuple(pages(3))).known == (0, 2)


def test_what_was_not_seen_is_not_forgotten(news: Anywhere) -> None:
    news.add(*pages(1))
    assert tried(news, "forget", "http://a.example/9") == (0, "There is nothing of it to forget.\n")
    found = news.answer("seen", "forget", "http://a.example/9", "http://a.example/0", "--yes")
    assert found == {"crawl": news.name, "forgotten": 1, "matched": None, "complete": True}


def test_a_pattern_finds_what_is_open_and_says_so(news: Anywhere) -> None:
    news.add(*pages(6), page("http://a.example/x/1"))
    done, dead = news.lease(2)
    news.settle((done,))
    news.settle((dead,), dead="it did not end")
    news.lease(1)
    news.add(*pages(2, "b.example"))
    gone = url_of(done)
    assert gone is not None
    code, text = tried(news, "forget", "http://a.example/*", "--yes")
    assert code == 0
    assert text.splitlines()[0] == (
        f"Requests of crawl {news.name!r} that match: 4 waiting, 1 leased, 1 dead. Of pages that are done "
        "the crawl keeps 64 bits each, and no URLs: a pattern cannot find them. To forget these, name their "
        "URLs."
    )
    assert text.splitlines()[1].startswith("No request is taken away by it: what waits is fetched")
    assert text.splitlines()[2] == "6 URLs would be forgotten."
    mine = [url for url in [*urls(6), "http://a.example/x/1"] if url != gone]
    assert not any(is_seen(news, *mine))
    assert all(is_seen(news, gone, "http://b.example/0", "http://b.example/1"))
    found = news.answer("seen", "forget", "*.example/1", "--yes")
    assert found["forgotten"] == 1
    assert not is_seen(news, "http://b.example/1")[0]


def test_a_star_can_be_meant(news: Anywhere) -> None:
    news.add(page("http://a.example/a*b"), page("http://a.example/aXb"))
    assert news.answer("seen", "forget", "http://a.example/a[*]b", "--yes")["forgotten"] == 1
    assert is_seen(news, "http://a.example/a*b", "http://a.example/aXb") == [False, True]


def test_a_search_that_was_cut_short_says_so(news: Anywhere) -> None:
    news.add(*pages(10))
    code, text = tried(news, "forget", "http://a.example/*", "--limit", "4", "--yes")
    assert code == 0
    assert "that match: 4 waiting" in text
    assert "Only 4 waiting requests were looked at; more with --limit." in text


def test_what_cannot_be_forgotten(bloom: Anywhere, capsys: pytest.CaptureFixture[str]) -> None:
    bloom.add(*pages(1))
    error = refused(bloom, capsys, "forget", "http://a.example/0", "--yes")
    assert "a Bloom filter, which cannot forget a URL" in error
    assert f"scrapy fleet seen {bloom.name} convert off" in error
    assert "add --yes" in refused(bloom, capsys, "forget", "http://a.example/0", "--json")
    assert "is no URL" in refused(bloom, capsys, "forget", "a.example/0")


# Files


def test_urls_are_imported(news: Anywhere, tmp_path: Path) -> None:
    news.add(*pages(2))
    file = file_of(tmp_path, "# mine", *urls(5), "", "http://a.example/4#part")
    code, text = tried(news, "import", file)
    assert code == 0
    assert text.startswith(f"6 URLs read, 3 new: crawl {news.name!r} has seen 5. Filter: exact (every")
    assert all(is_seen(news, *urls(5)))
    assert news.commit(adds=tuple(pages(6))).known == (0, 1, 2, 3, 4)
    assert news.answer("seen", "import", file) == {
        "crawl": news.name, "what": "URLs", "read": 6, "new": 0, "seen": 6,
    }  # fmt: skip


def test_what_scrapy_keeps_is_imported(news: Anywhere, tmp_path: Path) -> None:
    """As this Scrapy writes it, and as older ones did."""
    stock = RFPDupeFilter(str(tmp_path))
    for url in urls(20):
        stock.request_seen(Request(url))
    stock.close("finished")
    found = news.answer("seen", "import", str(tmp_path / "requests.seen"))
    assert found == {"crawl": news.name, "what": "fingerprints", "read": 20, "new": 20, "seen": 20}
    assert all(is_seen(news, *urls(20)))
    lines = [fingerprint(Request(url)).hex() for url in urls(3, 100)]
    found = news.answer("seen", "import", file_of(tmp_path, *lines))
    assert (found["what"], found["new"]) == ("fingerprints", 3)
    assert all(is_seen(news, *urls(3, 100)))


@pytest.mark.parametrize("binary", [True, False])
def test_what_a_killed_crawl_left_half_written_is_passed_over(binary: bool, tmp_path: Path) -> None:
    prints = [fingerprint(Request(url)) for url in urls(3)]
    if binary:
        whole = b"".join(len(each).to_bytes(2, "big") + each for each in prints)
    else:
        whole = b"".join(each.hex().encode() + b"\n" for each in prints)
    file = tmp_path / "requests.seen"
    with a_crawl("sqlite", tmp_path) as crawl:
        for cut in (1, 2, 13, 20):
            file.write_bytes(whole[:-cut])
            assert crawl.answer("seen", "import", str(file))["read"] == (3 if cut == 1 and not binary else 2)


def test_export_and_import(news: Anywhere, store_kind: str, tmp_path: Path) -> None:
    news.add(*pages(30))
    file = tmp_path / "keys.txt"
    code, text = tried(news, "export", "--output", str(file))
    assert code == 0
    assert text.startswith(
        f"30 fingerprints of crawl {news.name!r} in {file}: 64 bits of each, in hex digits."
    )
    head, keys = file.read_text().splitlines()[:2], file.read_text().splitlines()[2:]
    assert head[0].startswith(f"# What crawl {news.name!r} has seen: the first 64 bits of the fingerprints")
    assert sorted(keys) == sorted(fingerprint(Request(url)).hex()[:16] for url in urls(30))
    assert news.said("seen", "export").splitlines()[:2] == head
    assert news.answer("seen", "export", "--output", str(file))["count"] == 30
    with a_crawl(store_kind, tmp_path, BLOOM) as other:
        assert other.answer("seen", "import", str(file))["new"] >= 28
        assert all(is_seen(other, *urls(30)))


def test_what_cannot_be_exported(bloom: Anywhere, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bloom.add(*pages(3))
    file = tmp_path / "keys.txt"
    assert "keeps no keys" in refused(bloom, capsys, "export", "--output", str(file))
    assert not file.exists()
    assert "--output" in refused(bloom, capsys, "export", "--json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"http://a.example/0\nnonsense\n", "line 2: 'nonsense' is neither a URL nor a fingerprint"),
        (b"nonsense", "line 1: 'nonsense' is neither a URL nor a fingerprint"),
        (b"0123456789abcdef\nhttp://a.example/\n", "line 2: 'http://a.example/' is no fingerprint in hex"),
        (b"http://a.example/0\n\xff\xfe\n", "line 2: it is not text in UTF-8"),
        (b"\0\0\0\0", "is damaged: a fingerprint of no length at byte 0"),
    ],
)
def test_bad_files_are_refused(
    text: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad"
    file.write_bytes(text)
    with a_crawl("sqlite", tmp_path) as crawl:
        assert says in refused(crawl, capsys, "import", str(file))
        assert is_seen(crawl, "http://a.example/0")[0] == text.startswith(b"http")
        assert "cannot be read: No such file" in refused(crawl, capsys, "import", str(tmp_path / "none"))
        (tmp_path / "empty").touch()
        code, said = tried(crawl, "import", str(tmp_path / "empty"))
        assert (code, said) == (0, f"There is nothing in {tmp_path / 'empty'}.\n")


def test_a_crawl_can_begin_with_an_import(store_kind: str, tmp_path: Path, capsys: Any) -> None:
    with a_crawl(store_kind, tmp_path) as other:
        url, name = other.url, f"{other.name}-new"
    words = ["seen", name, "import", file_of(tmp_path, *urls(5)), "--url", url]
    assert main(words) == 2
    assert "To make it: --create." in capsys.readouterr().err
    assert main([*words, "--create", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new"] == 5
    with_this = Anywhere(url, name, Plan(rule=Rule(concurrency=2)))
    assert with_this.commit(adds=tuple(pages(7))).known == (0, 1, 2, 3, 4)
    with_this.store.close()


# Converting


def test_exact_becomes_bloom(news: Anywhere, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    news.add(*pages(100))
    assert "workers are in the crawl" in refused(news, capsys, "convert", "bloom", "--yes")
    news.leave()
    answers(monkeypatch, "no\n")
    code, text = tried(news, "convert", "bloom", "--capacity", "1000", "--error", "0.01")
    assert code == 2
    assert text == (
        f"Crawl {news.name!r} has seen 100 URLs. Now: exact (every URL is known, by 64 bits of its "
        "fingerprint).\nThen: bloom (made for 1,000 URLs, an error of 1 % at most). A Bloom filter cannot be "
        "turned back, nor can anything in it be listed or forgotten.\n"
        "Convert it? [y/N] Nothing was changed.\n"
    )
    answers(monkeypatch, "y\n")
    code, text = tried(news, "convert", "bloom", "--capacity", "1000", "--error", "0.01")
    assert code == 0
    assert text.splitlines()[-1] == (
        "Its workers must ask for it, or they are refused: "
        "FLEET_SEEN = 'bloom', FLEET_SEEN_CAPACITY = 1000, FLEET_SEEN_ERROR = 0.01"
    )
    assert all(is_seen(news, *urls(100)))
    assert news.answer("seen")["plan"]["capacity"] == 1000
    again = Anywhere(news.url, news.name, Plan(rule=Rule(concurrency=2), seen=BLOOM))
    again.leave()
    again.store.close()
    assert "keeps no keys" in refused(news, capsys, "convert", "exact", "--yes")
    assert "has this filter already" in refused(
        news, capsys, "convert", "bloom", "--capacity", "1000", "--error", "0.01", "--yes"
    )


def test_rolling_and_back(news: Anywhere) -> None:
    news.add(*pages(20))
    news.leave()
    found = news.answer("seen", "convert", "rolling", "--window", "12h", "--hot", "2", "--yes")
    assert found == {
        "crawl": news.name,
        "kind": "rolling",
        "count": 20,
        "settings": {"FLEET_SEEN": "rolling", "FLEET_SEEN_WINDOW": 43200.0, "FLEET_SEEN_HOT": 2},
    }
    assert all(is_seen(news, *urls(20)))
    assert news.answer("seen", "convert", "exact", "--yes")["count"] == 20
    assert all(is_seen(news, *urls(20)))
    assert news.answer("seen", "convert", "off", "--yes")["count"] == 0
    assert not any(is_seen(news, *urls(20)))
    assert "The crawl filters nothing" in tried(news, "has", "http://a.example/0")[1]


# A project


BY_PATH = """
class ByPath:
    def fingerprint(self, request):
        return request.url.partition("?")[0].encode()
"""


def test_the_projects_fingerprinter_and_filter_are_used(tmp_path: Path) -> None:
    settings = (
        "ADDONS = {'scrapy_fleet.Addon': 500}\nFLEET_SEEN = 'bloom'\nFLEET_SEEN_CAPACITY = 5000\n"
        "REQUEST_FINGERPRINTER_CLASS = 'shop.prints.ByPath'"
    )
    folder = project(tmp_path, settings)
    (folder / "shop" / "prints.py").write_text(BY_PATH)
    file = file_of(tmp_path, "http://a.example/?1", "http://b.example/")
    paths = (folder, entry_points(tmp_path / "points"))
    found = data("seen", "books", "import", file, "--create", cwd=folder, command=SCRAPY_FLEET, paths=paths)
    assert found["new"] == 2
    found = data("seen", "has", "http://a.example/?2", "http://b.example/?x", cwd=folder, paths=paths)
    assert [each["seen"] for each in found["urls"]] == [True, True]
    found = data("seen", cwd=folder, paths=paths)
    assert (found["crawl"], found["plan"]["kind"], found["plan"]["capacity"]) == ("books", "bloom", 5000)


def test_lines_from_a_pipe(tmp_path: Path) -> None:
    Crawl(tmp_path / ".scrapy" / "fleet" / "news.db", "news").add(*pages(1))
    done = subprocess.run(
        [*FLEET, "seen", "import", "-", "--json"],
        input="\n".join(urls(3)), cwd=tmp_path, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["new"] == 2, done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("has", "required: URL ..."),
        ("forget", "required: URL|PATTERN ..."),
        ("import", "required: FILE"),
        ("import a b", "seen import takes FILE; not a b"),
        ("export a", "seen export takes no words after it; not a"),
        ("convert", "required: KIND"),
        ("convert fast", "'fast' is none of exact, bloom, rolling, off"),
        ("news hass http://a.example/", "'hass' is none of has, forget, import, export, convert"),
        ("http://a.example/", "Say has or forget before it"),
        ("has http://a.example/ --yes", "--yes goes with seen forget and seen convert only"),
        ("convert bloom --error 2", "argument --error: it must be 0.5 at most"),
        ("convert bloom --capacity few", "argument --capacity: it must be a whole number"),
        ("convert rolling --window soon", "argument --window: it must be a time above 0"),
        ("news --capacity 5", "--capacity goes with seen convert only"),
    ],
)
def test_wrong_words_are_refused(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["seen", *words.split()])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
