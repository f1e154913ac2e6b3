"""Every setting is read, checked, documented, and does what its Scrapy counterpart did."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict
from scrapy import Spider
from scrapy.exceptions import NotConfigured
from scrapy.settings import Settings

from scrapy_fleet import FleetPipeline
from scrapy_fleet.ahead import SLACK
from scrapy_fleet.errors import FleetError, SettingError
from scrapy_fleet.model import Auto, Rule
from scrapy_fleet.pacing import drawn
from scrapy_fleet.settings import TABLE, Options, Setting, of, open_store, read, shown, store_path
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.sqlite import SqliteStore
from tests.commands import a_crawler, project

ROOT = Path(__file__).parents[1]
ADDONS = {"scrapy_fleet.Addon": 500}
AUTO = {"AUTOTHROTTLE_ENABLED": True}


class Shop(Spider):
    name = "shop"


def options(spider: type[Spider] = Shop, **values: Any) -> Options:
    return read(Settings(values), spider)


# The table

ANOTHER: dict[str, tuple[Any, str, Any]] = {
    # setting: a value, and the option it becomes
    "FLEET_URL": ("memory:", "url", "memory:"),
    "FLEET_CRAWL": ("books", "crawl", "books"),
    "FLEET_COMMIT_INTERVAL": ("1.5", "commit_interval", 1.5),
    "FLEET_COMMIT_SIZE": ("7", "commit_size", 7),
    "FLEET_LOOKAHEAD": ("0", "lookahead", 0),
    "FLEET_WORKER_TIMEOUT": (9, "worker_timeout", 9.0),
    "FLEET_MAX_ATTEMPTS": (2, "max_attempts", 2),
    "FLEET_MAX_RUNTIME": ("60", "max_runtime", 60.0),
    "FLEET_ON_FINISH": ("keep", "keep_seen", True),
    "FLEET_ORDER": ("fifo", "lifo", False),
    "FLEET_DURABILITY": ("normal", "durability", "normal"),
    "FLEET_KNOWN_URLS": ("10", "known_urls", 10),
    "FLEET_SEEN": ("rolling", "seen_kind", "rolling"),
    "FLEET_SEEN_CAPACITY": ("5000", "seen_capacity", 5000),
    "FLEET_SEEN_ERROR": ("0.01", "seen_error", 0.01),
    "FLEET_SEEN_WINDOW": ("12h", "seen_window", 12 * 3600.0),
    "FLEET_SEEN_HOT": ("4", "seen_hot", 4),
    "FLEET_BACKOFF": ("1.5", "first", 1.5),
    "FLEET_BACKOFF_MAX": (30, "most", 30.0),
    "FLEET_BREAKER": ("0", "failures", 0),
    "FLEET_HOST_PATIENCE": ("0", "patience", 0.0),
    "FLEET_MAX_IDLE_TIME": (7.5, "max_idle_time", 7.5),
    "FLEET_ROBOTS_MAX_AGE": (60, "robots_max_age", 60.0),
}


def flat(options: Options) -> dict[str, Any]:
    seen = {f"seen_{name}": value for name, value in asdict(options.plan.seen).items()}
    return {**asdict(options), **asdict(options.plan), **asdict(options.plan.backoff), **seen}


@pytest.mark.parametrize("setting", TABLE, ids=lambda setting: setting.name)
def test_every_setting_is_read(setting: Setting) -> None:
    value, option, result = ANOTHER[setting.name]
    before, after = flat(options()), flat(options(**{setting.name: value}))
    assert after[option] == result != before[option]
    wholes = {"plan", "backoff", "seen", "urls_expected"}
    assert {name for name in after if after[name] != before[name]} - wholes == {option}


@pytest.mark.parametrize("setting", TABLE, ids=lambda setting: setting.name)
def test_every_default_passes_its_own_check(setting: Setting) -> None:
    if setting.default is not None:
        assert setting.parse(setting.default) == setting.default
        assert setting.parse(str(setting.default)) == setting.default
    else:
        assert "Unset:" in setting.meaning


@pytest.mark.parametrize("value", ["", -1, float("nan"), [], object, "nonsense"], ids=repr)
@pytest.mark.parametrize("setting", TABLE, ids=lambda setting: setting.name)
def test_what_makes_no_sense_is_refused_by_name(setting: Setting, value: Any) -> None:
    if setting.name in ("FLEET_URL", "FLEET_CRAWL") and value == "nonsense":
        value = 7  # any text may be a name
    with pytest.raises(SettingError, match=f"^{setting.name} = .* cannot be used: it must be "):
        options(**{setting.name: value})


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("90s", 90), ("15m", 900), ("12h", 43200), ("7d", 604800), (" 2W ", 1209600), ("0.5h", 1800), (60, 60)],
)
def test_a_window_is_a_time(value: Any, seconds: float) -> None:
    assert options(FLEET_SEEN_WINDOW=value).plan.seen.window == seconds


@pytest.mark.parametrize("value", ["0", "d", "7 days", "-1d", "1e400d", 0])
def test_a_window_that_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(
        SettingError, match="it must be a time above 0: seconds, or as 90s, 15m, 12h, 7d or 2w"
    ):
        options(FLEET_SEEN_WINDOW=value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, float("inf")),
        ({"FLEET_SEEN_CAPACITY": 7}, 7),
        ({"FLEET_SEEN": "bloom"}, 1_000_000),
        ({"FLEET_SEEN": "bloom", "FLEET_SEEN_CAPACITY": 7}, 7),
        ({"FLEET_SEEN": "rolling", "FLEET_SEEN_CAPACITY": 7}, float("inf")),
    ],
)
def test_from_how_many_urls_on_their_cost_is_told(settings: dict[str, Any], expected: float) -> None:
    assert options(**settings).urls_expected == expected


@pytest.mark.parametrize("name", ["FLEET_COMMIT_SIZE", "FLEET_LOOKAHEAD", "FLEET_KNOWN_URLS"])
def test_a_number_without_end_is_no_whole_number(name: str) -> None:
    with pytest.raises(SettingError, match="it must be a whole number"):
        options(**{name: float("inf")})


def test_a_misspelt_name_is_told_with_the_nearest() -> None:
    with pytest.raises(
        SettingError, match=r"no setting FLEET_WORKER_TIMOUT\. Did you mean FLEET_WORKER_TIMEOUT\?"
    ):
        options(FLEET_WORKER_TIMOUT=3)
    with pytest.raises(SettingError, match=r"no setting FLEET_QQQ\. There are: FLEET_URL, "):
        options(FLEET_QQQ=3)


def test_the_docs_list_exactly_these() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")
    ]
    listed = {row[0].strip("`"): row for row in rows if row[0].startswith("`FLEET_")}
    assert listed.keys() == {setting.name for setting in TABLE}
    for setting in TABLE:
        row = listed[setting.name]
        default = f'"{setting.default}"' if isinstance(setting.default, str) else str(setting.default)
        assert row[1].strip("`").replace("_", "").replace(",", "") == default
        assert row[2] == setting.meaning


def test_no_other_page_names_a_setting_that_is_not_there() -> None:
    known = {setting.name for setting in TABLE}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        named = set(re.findall(r"\bFLEET_[A-Z_]+[A-Z]\b", page.read_text(encoding="utf-8")))
        assert named <= known, page


# Scrapy's own settings


def test_delay_and_concurrency_are_scrapys() -> None:
    assert options().plan.rule == Rule(delay=0.0, concurrency=8, jitter=drawn(0.5))
    plan = options(DOWNLOAD_DELAY=0.5, CONCURRENT_REQUESTS_PER_DOMAIN="3").plan
    assert plan.rule == Rule(delay=0.5, concurrency=3, jitter=drawn(0.5))


def test_a_spider_may_have_its_own_delay_and_concurrency() -> None:
    class Own(Shop):
        download_delay = 2.0
        max_concurrent_requests = 1

    assert options(Own, DOWNLOAD_DELAY=0.5).plan.rule == Rule(delay=2.0, concurrency=1, jitter=drawn(0.5))


@pytest.mark.parametrize(
    ("settings", "jitter"),
    [
        ({"RANDOMIZE_DOWNLOAD_DELAY": False}, 0.0),
        ({"RANDOMIZE_DOWNLOAD_DELAY": True}, drawn(0.5)),
        ({"DOWNLOAD_DELAY_JITTER": 0.2}, drawn(0.2)),
        ({"DOWNLOAD_DELAY_JITTER": 7}, 1.0),
    ],
)
def test_jitter(settings: dict[str, Any], jitter: float) -> None:
    assert options(**settings).plan.rule.jitter == jitter


@pytest.mark.parametrize("jitter", [0.1, 0.5, 0.9, 1.0])
def test_no_distance_is_shorter_than_the_jitter_allows(jitter: float) -> None:
    least = 1 - options(DOWNLOAD_DELAY_JITTER=jitter).plan.rule.jitter
    assert least * (1 - SLACK) == pytest.approx(1 - jitter)


def test_slots_have_rules_of_their_own() -> None:
    plan = options(
        DOWNLOAD_DELAY=1,
        CONCURRENT_REQUESTS_PER_DOMAIN=4,
        DOWNLOAD_SLOTS={
            "a": {"delay": 3, "concurrency": 1, "jitter": 0.1},
            "b": {"randomize_delay": False},
            "c": {"randomize_delay": True, "delay": "0.5"},
        },
    ).plan
    assert plan.rule_of("a") == Rule(3.0, 1, drawn(0.1))
    assert plan.rule_of("b") == Rule(1.0, 4, 0.0)
    assert plan.rule_of("c") == Rule(0.5, 4, drawn(0.5))
    assert plan.rule_of("elsewhere") == Rule(1.0, 4, drawn(0.5))


def test_a_limit_for_addresses_goes_before_that_for_hosts() -> None:
    assert options(CONCURRENT_REQUESTS_PER_IP="2").plan.rule.concurrency == 2
    assert options(CONCURRENT_REQUESTS_PER_IP=0).plan.rule.concurrency == 8


def test_autothrottle_is_the_fleets() -> None:
    assert options().plan.auto is None
    assert options(AUTOTHROTTLE_TARGET_CONCURRENCY=0).plan.auto is None  # it is off, as in Scrapy
    assert options(**AUTO).plan.auto == Auto(5.0, 60.0, 1.0)
    own = {
        "AUTOTHROTTLE_START_DELAY": "1",
        "AUTOTHROTTLE_MAX_DELAY": 9,
        "AUTOTHROTTLE_TARGET_CONCURRENCY": 2.5,
    }
    assert options(**AUTO, **own).plan.auto == Auto(1.0, 9.0, 2.5)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"DOWNLOAD_DELAY": "soon"}, "DOWNLOAD_DELAY = 'soon'"),
        ({"DOWNLOAD_DELAY": -1}, "DOWNLOAD_DELAY = -1"),
        ({"CONCURRENT_REQUESTS_PER_DOMAIN": 0}, "CONCURRENT_REQUESTS_PER_DOMAIN = 0"),
        ({"DOWNLOAD_DELAY": float("inf")}, "DOWNLOAD_DELAY = inf"),
        ({"DOWNLOAD_DELAY": None}, "DOWNLOAD_DELAY = None"),
        ({"DOWNLOAD_DELAY_JITTER": "much"}, "DOWNLOAD_DELAY_JITTER = 'much'"),
        ({"RANDOMIZE_DOWNLOAD_DELAY": "perhaps"}, "RANDOMIZE_DOWNLOAD_DELAY = 'perhaps'"),
        ({"CONCURRENT_REQUESTS_PER_IP": -1}, "CONCURRENT_REQUESTS_PER_IP = -1"),
        ({"DOWNLOAD_SLOTS": {"a": {"delay": "x"}}}, "DOWNLOAD_SLOTS['a']['delay'] = 'x'"),
        ({"DOWNLOAD_SLOTS": {"a": {"delay": -0.5}}}, "DOWNLOAD_SLOTS['a']['delay'] = -0.5"),
        ({"DOWNLOAD_SLOTS": {"a": {"concurrency": 0}}}, "DOWNLOAD_SLOTS['a']['concurrency'] = 0"),
        ({"DOWNLOAD_SLOTS": {"a": {"jitter": []}}}, "DOWNLOAD_SLOTS['a']['jitter'] = []"),
        ({"DOWNLOAD_SLOTS": {"a": {"speed": 1}}}, "DOWNLOAD_SLOTS['a'] has no key 'speed'"),
        ({"DOWNLOAD_SLOTS": {"a": 3}}, "DOWNLOAD_SLOTS['a'] = 3"),
        ({"AUTOTHROTTLE_ENABLED": "often"}, "AUTOTHROTTLE_ENABLED = 'often'"),
        ({**AUTO, "AUTOTHROTTLE_START_DELAY": -1}, "AUTOTHROTTLE_START_DELAY = -1"),
        ({**AUTO, "AUTOTHROTTLE_MAX_DELAY": "long"}, "AUTOTHROTTLE_MAX_DELAY = 'long'"),
        ({**AUTO, "AUTOTHROTTLE_TARGET_CONCURRENCY": 0}, "AUTOTHROTTLE_TARGET_CONCURRENCY = 0"),
        ({**AUTO, "AUTOTHROTTLE_TARGET_CONCURRENCY": "-1"}, "AUTOTHROTTLE_TARGET_CONCURRENCY = '-1'"),
    ],
)
def test_wrong_values_of_scrapys_settings_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingError, match=re.escape(told)):
        options(**settings)


@pytest.mark.parametrize(
    ("settings", "keep"),
    [
        ({}, False),
        ({"SCHEDULER_PERSIST": True}, True),
        ({"SCHEDULER_PERSIST": "1"}, True),
        ({"SCHEDULER_PERSIST": "False"}, False),
        ({"SCHEDULER_PERSIST": True, "FLEET_ON_FINISH": "clear"}, False),
    ],
)
def test_what_was_seen_is_kept_under_either_name(settings: dict[str, Any], keep: bool) -> None:
    assert options(**settings).plan.keep_seen is keep


@pytest.mark.parametrize(
    ("settings", "lifo"),
    [
        ({}, True),
        ({"SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue"}, False),
        ({"SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.LifoMemoryQueue"}, True),
        ({"SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue", "FLEET_ORDER": "lifo"}, True),
        ({"SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.LifoMemoryQueue", "FLEET_ORDER": "fifo"}, False),
    ],
)
def test_order_is_that_of_the_memory_queue(settings: dict[str, Any], lifo: bool) -> None:
    assert options(**settings).plan.lifo is lifo


class RandomQueue:
    push = pop = close = __len__ = lambda *_: 0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"SCHEDULER_MEMORY_QUEUE": RandomQueue}, "Say with FLEET_ORDER which"),
        ({"SCHEDULER_START_MEMORY_QUEUE": RandomQueue}, "SCHEDULER_START_MEMORY_QUEUE"),
        ({"SCHEDULER_START_MEMORY_QUEUE": "scrapy.squeues.LifoMemoryQueue"}, "go out in their order"),
        ({"SCHEDULER_PRIORITY_QUEUE": RandomQueue}, "give requests a priority"),
        ({"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.Nothing"}, "cannot be imported"),
        ({"SCHEDULER_MEMORY_QUEUE": "nothing"}, "cannot be imported"),
        (
            {"JOBDIR": "here", "SCHEDULER_START_DISK_QUEUE": "scrapy.squeues.PickleLifoDiskQueue"},
            "SCHEDULER_START_DISK_QUEUE = 'scrapy.squeues.PickleLifoDiskQueue' cannot be used",
        ),
    ],
)
def test_an_order_that_the_store_does_not_have_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingError, match=re.escape(told)):
        options(**settings)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"SCHEDULER_MEMORY_QUEUE": RandomQueue, "FLEET_ORDER": "lifo"},
            ["FLEET_ORDER = 'lifo' goes before"],
        ),
        ({"SCHEDULER_START_DISK_QUEUE": None}, ["SCHEDULER_START_DISK_QUEUE = None is not used"]),
        ({"SCHEDULER_DISK_QUEUE": RandomQueue}, ["requests are kept in tests.test_settings.RandomQueue"]),
        ({"SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleLifoDiskQueue"}, []),
        ({}, []),
    ],
)
def test_a_setting_without_effect_is_told(settings: dict[str, Any], told: list[str]) -> None:
    remarks = options(**settings).remarks
    assert len(remarks) == len(told)
    assert all(part in remark for part, remark in zip(told, remarks, strict=True)), remarks


def test_order_by_a_class_instead_of_its_name() -> None:
    from scrapy.squeues import FifoMemoryQueue, LifoMemoryQueue

    assert options(SCHEDULER_MEMORY_QUEUE=FifoMemoryQueue).plan.lifo is False
    assert options(SCHEDULER_MEMORY_QUEUE=LifoMemoryQueue).plan.lifo is True


def test_how_far_a_worker_looks_ahead() -> None:
    assert (options().capacity, options().lookahead) == (16, 16)
    assert options(CONCURRENT_REQUESTS=1).lookahead == 0
    assert options(CONCURRENT_REQUESTS=1, FLEET_LOOKAHEAD=2).lookahead == 2


# The add-on


def settings_with_the_addon(**values: Any) -> Settings:
    crawler = a_crawler(Shop, ADDONS=ADDONS, **values)
    of(crawler)
    return crawler.settings


def test_the_downloader_does_not_delay_what_the_store_has_paced() -> None:
    settings = settings_with_the_addon(
        DOWNLOAD_DELAY=1.0, DOWNLOAD_SLOTS={"a": {"delay": 4.0, "jitter": 0.25, "concurrency": 2}}
    )
    assert 0 < settings.getfloat("DOWNLOAD_DELAY") < 0.5
    assert not settings.get("DOWNLOAD_DELAY_JITTER", settings.getbool("RANDOMIZE_DOWNLOAD_DELAY"))
    (slot,) = settings.getdict("DOWNLOAD_SLOTS").values()
    assert 0 < slot.pop("delay") < 3.0
    assert slot == {"concurrency": 2}


def test_with_a_queue_of_ones_own_scrapys_manners_stay(caplog: pytest.LogCaptureFixture) -> None:
    manners = {"DOWNLOAD_DELAY": 1.0, "AUTOTHROTTLE_ENABLED": True, "FLEET_CRAWL": "a/b"}
    crawler = a_crawler(Shop, ADDONS=ADDONS, SCHEDULER_DISK_QUEUE=RandomQueue, **manners)
    assert {name: crawler.settings[name] for name in manners} == manners
    assert crawler.settings["JOBDIR"].endswith("fleet/a%2Fb.queue")
    assert not [name for name in crawler.settings["SPIDER_MIDDLEWARES"] if "fleet" in str(name)]
    with pytest.raises(NotConfigured, match="SCHEDULER_DISK_QUEUE"):
        FleetPipeline.from_crawler(crawler)
    crawler = a_crawler(Shop, ADDONS=ADDONS, SCHEDULER_DISK_QUEUE=RandomQueue, JOBDIR="mine", FLEET_ODER=1)
    assert crawler.settings["JOBDIR"] == "mine"
    with pytest.raises(SettingError, match="FLEET_ORDER"):
        of(crawler)


def test_autothrottle_runs_in_the_store_alone() -> None:
    settings = settings_with_the_addon(DOWNLOAD_DELAY=1.0, AUTOTHROTTLE_ENABLED=True)
    assert not settings.getbool("AUTOTHROTTLE_ENABLED")
    # A little under the shortest distance with which it begins.
    assert 2.0 < settings.getfloat("DOWNLOAD_DELAY") < 2.5


def test_a_wrong_setting_does_not_stop_scrapy_from_starting() -> None:
    crawler = a_crawler(Shop, ADDONS=ADDONS, FLEET_COMMIT_SIZE="many")
    with pytest.raises(SettingError, match="FLEET_COMMIT_SIZE"):
        of(crawler)


def test_the_scheduler_without_the_addon_says_what_is_missing() -> None:
    with pytest.raises(SettingError, match=re.escape('ADDONS = {"scrapy_fleet.Addon": 500}')):
        of(a_crawler(Shop))


# Where a crawl lives


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/crawls", "/var/crawls/shop.db"),
        ("sqlite:///var/crawls/", "/var/crawls/shop.db"),
        ("sqlite:///var/crawls/news.db", "/var/crawls/news.db"),
        ("sqlite:////var/crawls/news.db", "/var/crawls/news.db"),
        ("sqlite:/var/crawls", "/var/crawls/shop.db"),
        ("sqlite:crawls", "crawls/shop.db"),
        ("sqlite:news.db", "news.db"),
        ("sqlite:///./crawls", "crawls/shop.db"),
        ("sqlite:///./news.db", "news.db"),
        ("sqlite:///../news.db", "../news.db"),
    ],
)
def test_the_place_a_url_names(url: str, path: str) -> None:
    assert store_path(url, "shop") == Path(path)
    assert store_path(url, "shop", jobdir="job") == Path(path)


def test_a_folder_may_end_in_db(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    assert store_path(f"sqlite://{tmp_path}/x.db", "shop") == tmp_path / "x.db" / "shop.db"


def test_the_place_without_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCRAPY_SETTINGS_MODULE", raising=False)
    assert store_path(None, "shop") == Path(".scrapy/fleet/shop.db")
    assert store_path(None, "shop", jobdir="job") == Path("job/fleet.db")
    assert store_path(None, "shop", jobdir=str(tmp_path / "job")) == tmp_path / "job" / "fleet.db"


def test_the_place_in_a_project_is_beside_its_scrapy_cfg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(tmp_path / "made", "")
    monkeypatch.syspath_prepend(str(made))
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "shop.settings")
    for folder in (made, made / "shop"):
        monkeypatch.chdir(folder)
        assert store_path(None, "x").resolve() == made / ".scrapy" / "fleet" / "x.db"


@pytest.mark.parametrize("crawl", ["a/b", "../../etc", ".", "..", "a b", "ü", "%2F", "CON", "a\nb", "x" * 60])
def test_any_name_of_a_crawl_is_a_file_in_the_folder(crawl: str, tmp_path: Path) -> None:
    path = store_path(f"sqlite://{tmp_path}", crawl)
    assert path.parent == tmp_path
    assert path.name not in (".", "..")
    store = SqliteStore(path, crawl)
    store.close()
    assert path.exists()


def test_crawls_with_different_names_have_different_files(tmp_path: Path) -> None:
    names = ["a/b", "a%2Fb", "a_b", "a b", "A/b"]
    assert len({store_path(f"sqlite://{tmp_path}", name) for name in names}) == len(names)


def test_stores_are_opened_by_their_url(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:", "shop"), MemoryStore)
    store = open_store(f"sqlite://{tmp_path}", "shop")
    assert isinstance(store, SqliteStore)
    assert (tmp_path / "shop.db").exists()
    store.close()
    with pytest.raises(FleetError, match="no store for 'ftp'"):
        open_store("ftp://host/x", "shop")


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://user@host", "redis://user@host"),
        ("redis://user:secret@host:6379/0", "redis://user:***@host:6379/0"),
        ("redis://:secret@host", "redis://:***@host"),
        ("redis://user:se:cr@et/s@host", "redis://user:***@host"),
        ("redis://user:secret@[host", "redis://user:***@[host"),
        ("redis:user:secret@host", "redis:user:***@host"),
    ],
)
def test_passwords_are_not_shown(url: str, safe: str) -> None:
    assert shown(url) == safe
