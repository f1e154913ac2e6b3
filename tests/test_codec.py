"""Requests and plain data come back exactly as they were, or are refused with the name of the culprit."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import inspect
import os
import pickle
import sys
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from scrapy import Request, Spider
from scrapy.http import FormRequest, HtmlResponse, JsonRequest, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, CSVFeedSpider, Rule, SitemapSpider, XMLFeedSpider

from scrapy_fleet.crawl import codec as codec_module
from scrapy_fleet.crawl import seam
from scrapy_fleet.crawl.codec import Codec, describe, pack, unpack
from scrapy_fleet.errors import Unreadable, Unstorable

# How long an example takes says more of the machine than of the codec.
unhurried = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
URL = "https://example.com/a/page?with=a&query=1"


class Mixin:
    def parse_mixed(self, response: Any) -> None: ...


class Base(Spider):
    def parse_base(self, response: Any) -> None: ...

    def parse_both(self, response: Any) -> None: ...

    def __hidden(self, response: Any) -> None: ...

    def hidden_of_base(self) -> Any:
        return self.__hidden


class Shop(Base, Mixin):
    name = "shop"
    limit = 3

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def parse(self, response: Any, **kwargs: Any) -> None:
        self.called.append("parse")

    def parse_both(self, response: Any) -> None: ...

    async def parse_async(self, response: Any) -> None: ...

    def on_error(self, failure: Any) -> None: ...

    def closed(self, reason: str) -> None:
        self.called.append("closed")

    def __hidden(self, response: Any) -> None: ...

    def hidden(self) -> Any:
        return self.__hidden

    @property
    def trap(self) -> Callable[[], None]:
        self.called.append("trap")
        return lambda: None

    @staticmethod
    def static(response: Any) -> None: ...

    @classmethod
    def of_class(cls, response: Any) -> None: ...


class PageRequest(Request):
    """With attributes of its own, in the way Scrapy documents."""

    attributes = (*Request.attributes, "page", "seen")

    def __init__(self, *args: Any, page: int = 0, seen: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.page = page
        self.seen = seen


class PushyRequest(Request):
    """A constructor that meddles with what it is given, each time it is called."""

    def __init__(self, url: str, *args: Any, **kwargs: Any) -> None:
        kwargs["meta"] = {**(kwargs.get("meta") or {}), "pushed": True}
        super().__init__(url + "&key=1", *args, **kwargs)
        self.headers.setdefault("X-Key", "1")
        self.priority += 1

    class Nested(Request):
        pass


class StubbornRequest(Request):
    """Cannot be called as Scrapy calls it."""

    def __init__(self, page: int) -> None:
        super().__init__(f"https://example.com/{page}")


class LooseRequest(Request):
    def __init__(self, *args: Any, wait: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wait = wait


class Point(NamedTuple):
    x: int
    y: int


class Rank(enum.IntEnum):
    HIGH = 7


class Text(str):
    __slots__ = ()


class Zone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)


class WebDriver:
    pass


@pytest.fixture
def spider() -> Shop:
    return Shop()


@pytest.fixture
def codec(spider: Shop) -> Codec:
    return Codec(spider)


@pytest.fixture(params=["plain_request", "constructor", "subclass"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How requests are rebuilt: past the constructor or with it, or because Scrapy added attributes."""
    if request.param == "constructor":
        monkeypatch.setattr(seam, "_REQUEST_IS_KNOWN", False)
    if request.param == "subclass":
        monkeypatch.setattr(codec_module, "_PLAIN", None)


def exact(value: Any) -> Any:
    """Two values have the same form if and only if they are the same, types and order included."""
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if kind is dict:
        return kind, [(exact(key), exact(item)) for key, item in value.items()]
    if kind in (list, tuple):
        return kind, [exact(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(repr(exact(item)) for item in value)
    return kind, repr(value)


def assert_same(one: Request, other: Request) -> None:
    assert type(one) is type(other)
    for name in type(one).attributes:
        mine, theirs = getattr(one, name), getattr(other, name)
        if name in ("callback", "errback"):
            assert mine == theirs, name
        elif name == "headers":
            assert exact(dict(mine)) == exact(dict(theirs))
            assert type(mine) is type(theirs)
            assert mine.encoding == theirs.encoding
        else:
            assert exact(mine) == exact(theirs), name


def planted(*row: object) -> bytes:
    return b"\x01" + msgpack.encode(row)


# ---- plain data ----

ZONES = sorted(zoneinfo.available_timezones() & {"UTC", "Europe/Paris", "Asia/Kathmandu", "America/New_York"})
zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text(max_size=5)),
    *([st.sampled_from(ZONES).map(zoneinfo.ZoneInfo)] if ZONES else []),
)
any_text = st.text(st.characters(exclude_categories=()))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.integers(0, 2**600),
    st.floats(),
    any_text,
    st.binary(),
    st.decimals(),
    st.dates(),
    st.datetimes(timezones=zones),
    st.builds(
        lambda moment, fold: moment.replace(fold=fold), st.datetimes(timezones=zones), st.integers(0, 1)
    ),
    st.times(timezones=zones),
    st.timedeltas(),
    st.complex_numbers(),
    st.uuids(),
)
hashable_scalars = scalars.filter(lambda value: not (isinstance(value, Decimal) and value.is_snan()))
hashables = st.recursive(
    hashable_scalars,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
        st.dictionaries(st.text(max_size=4), inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4),
    ),
    max_leaves=12,
)


@unhurried
@given(values)
@example(float("nan"))
@example([float("inf"), -0.0, complex(-0.0, float("nan"))])
@example([True, 1, 1.0, Decimal("1.00"), "1", b"1"])
@example({2**64: -(2**63) - 1, 2**64 - 1: -(2**63)})
@example({(1, "\ud800"): {b"\xff": "\udfff"}, None: ()})
@example([Decimal("-0"), Decimal("NaN123"), Decimal("sNaN"), Decimal("-Infinity"), Decimal("1E+999999")])
@example(datetime(2024, 10, 27, 2, 30, fold=1))
@example(datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1), "\ud800")))
@example([datetime.min, datetime.max, date.min, time.max, timedelta.min, timedelta.max, UUID(int=0)])
def test_plain_data_comes_back_exactly(value: Any) -> None:
    assert exact(unpack(pack(value, "state"))) == exact(value)


@pytest.mark.skipif(not ZONES, reason="no time zone database")
def test_a_zone_comes_back_as_itself() -> None:
    zone = zoneinfo.ZoneInfo(ZONES[0])
    moment = unpack(pack(datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=1), "state"))
    assert isinstance(moment, datetime)
    assert moment.tzinfo is zone
    assert moment.fold == 1


@unhurried
@given(values)
def test_what_is_unpacked_shares_nothing_with_what_was_packed(value: Any) -> None:
    held = {"value": value}
    before = exact(held)
    first = unpack(pack(held, "state"))
    assert isinstance(first, dict)
    first.clear()
    assert exact(held) == before


def holding_itself() -> list[Any]:
    loop: list[Any] = [1]
    loop.append(loop)
    return loop


def nested(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (WebDriver(), "state is a WebDriver ("),
        ({"x": [1, 2, WebDriver()]}, "state['x'][2] is a WebDriver ("),
        ({"x": (1, {"y": WebDriver()})}, "state['x'][1]['y'] is a WebDriver ("),
        ({(1, 2): WebDriver()}, "state[(1, 2)] is a WebDriver ("),
        ({1: 0, Rank.HIGH: 1}, "state.keys()[1] is a Rank ("),
        ({"x": {"y": WebDriver}}, "state['x']['y'] is a type, which cannot be stored"),
        ([object()], "state[0] is an object, which cannot be stored"),
        (bytearray(b"x"), "state is a bytearray, which cannot be stored"),
        ([range(3)], "state[0] is a range, which cannot be stored"),
        (msgpack.Ext(4, b"\x90"), "state is an Ext ("),
        ({"x": Point(1, 2)}, "would come back as a plain tuple"),
        ({"x": Rank.HIGH}, "would come back as a plain int"),
        ({"x": Text("a")}, "would come back as a plain str"),
        ({"x": collections.OrderedDict(a=1)}, "would come back as a plain dict"),
        ({"x": collections.defaultdict(int)}, "would come back as a plain dict"),
        ({"x": collections.Counter("a")}, "would come back as a plain dict"),
        ({"x": collections.UserList()}, "state['x'] is an UserList (collections), which cannot be stored"),
        ({"x": [datetime(2024, 1, 1, tzinfo=Zone())]}, "state['x'][0] has a time zone of type Zone ("),
        ({"x": holding_itself()}, "levels deep or holds itself"),
        ({"x": nested(5000, lambda inner: [inner])}, "levels deep or holds itself"),
        ({"x": nested(5000, lambda inner: (inner,))}, "levels deep or holds itself"),
        ({"x": nested(5000, lambda inner: {"y": inner})}, "levels deep or holds itself"),
    ],
)
def test_what_has_no_exact_form_is_refused_by_name(value: Any, message: str) -> None:
    with pytest.raises(Unstorable) as refusal:
        pack(value, "state")
    assert message in str(refusal.value)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner,), lambda inner: {(1,): inner}])
def test_deep_nesting_comes_back(wrap: Callable[[Any], Any]) -> None:
    value = nested(95, wrap)
    assert unpack(pack(value, "state")) == value


def test_a_stack_without_room_is_no_crash() -> None:
    value = nested(90, lambda inner: (inner,))
    packed, limit = pack(value, "state"), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 60)
    try:
        with pytest.raises(Unstorable, match="nested too deeply"):
            pack(value, "state")
        with pytest.raises(Unreadable):
            unpack(packed)
    finally:
        sys.setrecursionlimit(limit)


# ---- requests ----


def headers_of() -> st.SearchStrategy[dict[Any, Any]]:
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.binary(min_size=1, max_size=8)
    return st.dictionaries(names, st.lists(st.binary(max_size=8), max_size=3), max_size=3)


metas = st.dictionaries(st.text(max_size=6), values, max_size=3) | st.dictionaries(
    hashables, values, max_size=2
)
cookie_lists = st.lists(
    st.fixed_dictionaries(
        {"name": st.text(max_size=5), "value": st.text(max_size=5) | st.binary(max_size=5) | st.integers()},
        optional={"domain": st.just("example.com"), "secure": st.booleans()},
    ),
    max_size=2,
)
paths = st.text(st.characters(codec="utf-8"), max_size=30)
arguments = st.fixed_dictionaries(
    {"url": paths.map("https://example.com/".__add__)},
    optional={
        "callback": st.sampled_from(["parse", "parse_async", "parse_base", "parse_mixed", "_parse"]),
        "errback": st.just("on_error"),
        "method": st.sampled_from(["GET", "POST", "put", "BREW"]),
        "headers": headers_of(),
        "body": st.binary(max_size=20) | st.text(st.characters(codec="utf-8"), max_size=20),
        "cookies": st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers(), max_size=3)
        | cookie_lists,
        "meta": metas,
        "cb_kwargs": metas,
        "priority": st.integers(),
        "dont_filter": st.booleans(),
        "flags": st.lists(any_text, max_size=2),
    },
)


def build(cls: type[Request], spider: Spider, kwargs: dict[str, Any]) -> Request:
    for name in kwargs.keys() & {"callback", "errback"}:
        kwargs[name] = getattr(spider, kwargs[name])
    return cls(**kwargs)


@pytest.mark.usefixtures("way")
@unhurried
@given(arguments)
def test_requests_come_back_exactly(kwargs: dict[str, Any]) -> None:
    spider = Shop()
    request = build(Request, spider, kwargs)
    assert_same(Codec(spider).decode(Codec(spider).encode(request)), request)


@unhurried
@given(arguments, st.sampled_from([FormRequest, JsonRequest, XmlRpcRequest, PageRequest, PushyRequest]))
def test_subclasses_come_back_exactly(kwargs: dict[str, Any], cls: type[Request]) -> None:
    spider = Shop()
    request = build(cls, spider, kwargs)
    assert_same(Codec(spider).decode(Codec(spider).encode(request)), request)


@pytest.mark.parametrize(
    "request_",
    [
        FormRequest(URL, formdata={"a": "1", "b": ["2", "ü"]}),
        FormRequest(URL, formdata={"a": "1"}, method="GET"),
        JsonRequest(URL, data={"b": 1, "a": [1.50, "ü"]}),
        JsonRequest(URL, data={"b": 1, "a": 2}, dumps_kwargs={"sort_keys": False, "separators": (",", ":")}),
        JsonRequest(URL),
        XmlRpcRequest(URL, params=(1, "x"), methodname="call"),
        XmlRpcRequest(URL, params=(1,), methodname="call", dont_filter=False, encoding="latin-1"),
        PageRequest(URL, page=3, seen={(1, 2)}),
        PushyRequest(URL),
        PushyRequest.Nested(URL),
        Request(URL, encoding="cp1251", headers={"X": "ж"}),
        Request(URL, headers={"Ñandu": "1"}),
        Request(URL, meta={"verbatim_url": True}),
        Request("https://example.com/{a b}?ü|[", meta={"verbatim_url": True}),
        Request("data:text/plain,hello"),
        *(Request(f"{start}x://example.com/") for start in ("/", ":", "=", "")),
        Request("http://example.com/", meta={"depth": 0}),
        Request(URL, meta={"depth": 2**70}),
        Request(URL, meta={"depth": True}),
        Request(URL, meta={"depth": 1, "a": 2}, priority=1),
        Request(URL, meta={"depth": 300}, priority=1),
    ],
    ids=repr,
)
def test_kinds_of_requests(codec: Codec, request_: Request) -> None:
    for _ in range(2):  # the first of a class is looked at more closely
        assert_same(codec.decode(codec.encode(request_)), request_)


def test_what_was_taken_away_after_construction_stays_away(codec: Codec) -> None:
    request = JsonRequest(URL, data={"a": 1})
    del request.headers["Accept"]
    pushy = PushyRequest(URL)
    pushy.headers.clear()
    pushy.meta.clear()
    pushy.priority = 0
    assert_same(codec.decode(codec.encode(request)), request)
    assert_same(codec.decode(codec.encode(pushy)), pushy)


@pytest.mark.usefixtures("way")
def test_each_decoding_gives_objects_of_its_own(codec: Codec) -> None:
    payload = codec.encode(Request(URL, meta={"a": [1]}, cookies={"b": "c"}, flags=["d"], headers={"E": "f"}))
    first, second = codec.decode(payload), codec.decode(payload)
    first.meta["a"].append(2)
    first.cookies.clear()
    first.flags.clear()
    first.headers["E"] = "g"
    first.cb_kwargs["h"] = 1
    assert_same(second, codec.decode(payload))
    assert_same(first.replace(), first)


def test_the_fast_way_is_in_use_where_requests_have_slots() -> None:
    assert ("__slots__" in vars(Request)) == seam._REQUEST_IS_KNOWN


def test_a_plain_request_is_little_more_than_its_url(codec: Codec, spider: Shop) -> None:
    assert len(codec.encode(Request(URL, spider.parse_base))) <= len(URL) + 8
    assert len(codec.encode(Request(URL, spider.parse, meta={"depth": 100}))) < len(URL)
    assert describe(codec.encode(Request(URL, spider.parse))) == {
        "method": "GET",
        "url": URL,
        "callback": "parse",
        "errback": None,
    }


def test_a_number_class_for_priorities_is_stored_as_its_number(codec: Codec) -> None:
    assert codec.decode(codec.encode(Request(URL, priority=Rank.HIGH))).priority == 7


def test_text_of_a_page_is_text(codec: Codec) -> None:
    response = HtmlResponse(URL, body=b"<a href='/x'>a link</a>", encoding="utf-8")
    text = LinkExtractor().extract_links(response)[0].text
    request = codec.decode(codec.encode(Request(URL, meta={"link_text": text, "all": [text]})))
    assert exact(request.meta) == exact({"link_text": "a link", "all": ["a link"]})


# ---- callbacks ----


@pytest.mark.usefixtures("way")
def test_callbacks(codec: Codec, spider: Shop) -> None:
    for callback in (
        None,
        NO_CALLBACK,
        spider.parse,
        spider.parse_base,
        spider.parse_both,
        spider.parse_mixed,
        spider.parse_async,
        spider.hidden(),
        spider.hidden_of_base(),
    ):
        request = codec.decode(codec.encode(Request(URL, callback, errback=callback)))
        assert request.callback == request.errback == callback


def test_callbacks_of_scrapys_own_spiders() -> None:
    class Crawl(CrawlSpider):
        name = "crawl"
        rules = (Rule(LinkExtractor(), callback="parse_item"),)

        def parse_item(self, response: Any) -> None: ...

    crawl = Crawl()
    response = HtmlResponse(URL, body=b"<a href='/x'>a link</a>", encoding="utf-8")
    for request in crawl._requests_to_follow(response):
        assert request is not None
        twin = Codec(crawl).decode(Codec(crawl).encode(request))
        assert (twin.callback, twin.errback) == (crawl._callback, crawl._errback)
        assert twin.meta == request.meta

    sitemap, xml, csv = SitemapSpider(name="a"), XMLFeedSpider(name="b"), CSVFeedSpider(name="c")
    for spider, callback in (
        (sitemap, sitemap._parse_sitemap),
        (xml, xml._parse),
        (csv, csv.parse),
        (crawl, crawl.parse_start_url),
    ):
        codec = Codec(spider)
        assert codec.decode(codec.encode(Request(URL, callback))).callback == callback


def closure() -> Callable[[Any], None]:
    return lambda response: None


def refused() -> Iterator[tuple[Callable[[Shop], Request], str]]:
    yield lambda s: Request(URL, meta={"driver": WebDriver()}), "meta['driver'] is a WebDriver ("
    yield lambda s: Request(URL, cb_kwargs={"a": [{1, Rank.HIGH}]}), "cb_kwargs['a'][0][1] is a Rank ("
    yield lambda s: Request(URL, cookies={"a": Text("b")}), "cookies['a'] is a Text ("
    yield lambda s: Request(URL, cookies=collections.OrderedDict(a="b")), "cookies is an OrderedDict ("
    yield lambda s: Request(URL, flags=["a", Text("b")]), "flags[1] is a Text ("
    yield lambda s: Request(URL, encoding=Text("utf-16")), "encoding is a Text ("
    yield lambda s: Request(URL, closure()), "callback is a lambda, which cannot be stored"
    yield lambda s: Request(URL, print), "callback is a builtin_function_or_method, which cannot be stored"
    yield lambda s: Request(URL, functools.partial(s.parse, a=1)), "callback is a partial (functools), which"
    yield lambda s: Request(URL, s.static), "callback is the function Shop.static, which cannot be stored"
    yield lambda s: Request(URL, s.of_class), "callback is the method Shop.of_class of another object, a type"
    yield (
        lambda s: Request(URL, Shop().parse),
        "callback is the method Shop.parse of another object, a Shop (",
    )
    yield (
        lambda s: Request(URL, [].append),
        "callback is a builtin_function_or_method, which cannot be stored",
    )
    yield (
        lambda s: Request(URL, super(Shop, s).parse_both),
        "callback is the method Base.parse_both, which cannot be stored",
    )
    yield lambda s: Request(URL, s.closed), "callback is the method Shop.closed, which cannot be stored"
    yield lambda s: Request(URL, s._set_crawler), "callback is the method Spider._set_crawler, which cannot"
    yield lambda s: Request(URL, s.parse, errback=closure()), "errback is a lambda, which cannot be stored"
    yield lambda s: JsonRequest(URL, dumps_kwargs={"default": str}), "dumps_kwargs['default'] is a type"
    yield lambda s: PageRequest(URL, seen=[WebDriver()]), "seen[0] is a WebDriver ("
    yield lambda s: StubbornRequest(1), "StubbornRequest cannot be stored"
    yield (
        lambda s: LooseRequest(URL, wait=1),
        "wait cannot be stored: LooseRequest.attributes does not list it",
    )
    yield lambda s: type("Made", (Request,), {})(URL), "Made cannot be stored"


@pytest.mark.parametrize(("make", "message"), list(refused()))
def test_what_cannot_be_stored_is_named(
    codec: Codec, spider: Shop, make: Callable[[Shop], Request], message: str
) -> None:
    for _ in range(2):
        with pytest.raises(Unstorable) as refusal:
            codec.encode(make(spider))
        assert message in str(refusal.value)


def test_attributes_of_a_subclass_that_cannot_be_read(codec: Codec) -> None:
    request = PageRequest(URL)
    del request.page
    with pytest.raises(Unstorable, match="page cannot be read"):
        codec.encode(request)


# ---- what others may have written ----


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "name",
    [
        *("close", "closed", "__init__", "__class__", "from_crawler", "update_settings", "start"),
        *("start_requests", "_set_crawler", "trap", "limit", "called", "static", "of_class"),
        *("parse.__func__", "crawler.stop", "nothing", "eval", "os.system", "logger", "name"),
        *("handles_request", "Shop.parse", 1, True, ["parse"]),
    ],
)
def test_only_callbacks_can_be_named(codec: Codec, spider: Shop, name: object) -> None:
    for payload in (planted(URL, name), planted(URL, None, None, {"e": name})):
        with pytest.raises(Unreadable):
            codec.decode(payload)
    assert spider.called == []


@pytest.mark.parametrize(
    "name",
    [
        *("os:system", "os.system", "os:path.join", "antigravity:Request", "wsgiref.handlers:BaseHandler"),
        *("builtins:eval", "builtins:dict", "scrapy:Spider", "scrapy.http:Request.__init__", "scrapy.http:"),
        *(f"{__name__}:{name}" for name in ("WebDriver", "PageRequest.attributes", "Shop", "URL.x")),
        *(":", ""),
    ],
)
def test_only_loaded_request_classes_can_be_named(codec: Codec, name: str) -> None:
    before = set(sys.modules)
    with pytest.raises(Unreadable, match="is not a Request subclass"):
        codec.decode(planted(URL, None, None, {"t": name}))
    assert set(sys.modules) == before


def test_pickles_are_not_opened(codec: Codec, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "boom"))
    for payload in (bomb, b"\x01" + bomb, planted(URL, None, {"a": bomb})):
        for read in (codec.decode, unpack):
            with contextlib.suppress(Unreadable):
                read(payload)
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "is empty"),
        (pickle.dumps({}), "has format 128"),
        (b"\x02" + planted(URL, None)[1:], "has format 2; this version of scrapy-fleet reads format 1"),
        (b"\x01", "truncated"),
        (planted(), "not a list"),
        (planted(URL), "not a list"),
        (planted(URL, None, None, {}, 1), "not a list"),
        (b"\x01\x80", "not a list"),
        (planted(5, None), "its URL"),
        (planted("no scheme", None), "its URL"),
        (planted(URL, None, [1]), "its meta"),
        (planted(URL, None, None, [1]), "damaged"),
        (planted(URL, None, None, {"?": 1}), "unknown field '?'"),
        (planted(URL, None, None, {"p": "1"}), "its priority is a str"),
        (planted(URL, None, None, {"b": "text"}), "its body is a str"),
        (planted(URL, None, None, {"c": 1}), "its cookies is an int"),
        (planted(URL, None, None, {"h": {"a": ["b"]}}), "its header 'a'"),
        (planted(URL, None, None, {"h": {b"a": b"b"}}), "its header b'a'"),
        (planted(URL, None, None, {"h": {b"a": ["b"]}}), "its header b'a'"),
        (planted(URL, None, None, {"t": "FormRequest", "x": {"formdata": {"a": "b"}}}), "'formdata'"),
        (planted(URL, None, None, {"t": "JsonRequest", "x": {"url": "b"}}), "damaged"),
        (planted(URL, None, {"a": msgpack.Ext(99, b"")}), "kind 99"),
        (planted(URL, None, {"a": msgpack.Ext(5, b"\x91\x90")}), "damaged"),
        (planted(URL, None, {"a": msgpack.Ext(3, b"\x91\x01")}), "damaged"),
        (planted(URL, None, {"a": msgpack.Ext(4, b"\x01")}), "kind 4"),
        (
            planted(URL, None, {"a": msgpack.Ext(9, msgpack.encode([2024, 1, 1, 0, 0, 0, 0, 0, "../etc"]))}),
            "damaged",
        ),
        (b"\x01" + b"\x91" * 5000, "damaged"),
    ],
)
def test_damaged_payloads_say_what_is_wrong(codec: Codec, payload: bytes, message: str) -> None:
    with pytest.raises(Unreadable) as trouble:
        codec.decode(payload)
    assert message in str(trouble.value)


def test_every_shortened_payload_is_unreadable_or_a_request(codec: Codec, spider: Shop) -> None:
    payload = codec.encode(
        PageRequest(
            URL, spider.parse, errback=spider.on_error, meta={"a": (1, {2}), (3,): Decimal(4)}, page=5
        )
    )
    for end in range(len(payload)):
        with pytest.raises(Unreadable):
            codec.decode(payload[:end])
        with pytest.raises(Unreadable):
            unpack(payload[:end])


@unhurried
@given(st.binary() | st.binary().map(b"\x01".__add__))
def test_random_bytes(data: bytes) -> None:
    codec = Codec(Shop())
    for read in (codec.decode, unpack):
        with contextlib.suppress(Unreadable):
            read(data)


@unhurried
@given(arguments, st.data())
def test_damaged_bytes(kwargs: dict[str, Any], data: st.DataObject) -> None:
    spider = Shop()
    payload = bytearray(Codec(spider).encode(build(Request, spider, kwargs)))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Unreadable):
        assert isinstance(Codec(spider).decode(bytes(payload)), Request)
    assert spider.called == []
