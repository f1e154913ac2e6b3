"""Requests of every kind: cookies, redirects, retries, forms, duplicates, limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import FormRequest, JsonRequest, Request, Response, XmlRpcRequest
from scrapy.utils.request import fingerprint
from twisted.python.failure import Failure

from tests.spiders.base import DEPTH, SiteSpider, show


class Cookies(SiteSpider):
    """A session that counts its visits, one visit after the other."""

    name = "cookies"
    start_paths = ["/session"]

    def parse(self, response: Response, left: int = 4) -> Iterator[Any]:
        yield show(response)
        if left > 0:
            yield self.get("/session", self.parse, cb_kwargs={"left": left - 1}, dont_filter=True)
        elif left == 0:
            yield self.get("/login?user=bert", self.shown)
            yield self.get("/redirect/302?to=/session", self.parse, cb_kwargs={"left": -1})

    def shown(self, response: Response) -> Iterator[Any]:
        cookies = response.json()["headers"].get("cookie", "").split("; ")  # type: ignore[attr-defined]
        yield {"user": [cookie for cookie in cookies if cookie.startswith("user")]}


class CookieJars(SiteSpider):
    """Sessions beside each other."""

    name = "cookie_jars"

    async def start(self) -> AsyncIterator[Any]:
        for jar in range(4):
            yield self.get("/session", meta={"cookiejar": jar}, cookies={"jar": str(jar)}, dont_filter=True)

    def parse(self, response: Response) -> Iterator[Any]:
        jar = response.meta["cookiejar"]
        yield show(response, jar=jar)
        if "3" not in response.css("title::text").get(""):
            yield self.get("/session", self.parse, meta={"cookiejar": jar}, dont_filter=True)
        else:
            yield self.get(f"/echo/{jar}", self.shown, meta={"cookiejar": jar})
            plain = {"cookiejar": jar, "dont_merge_cookies": True}
            yield self.get(f"/echo/plain-{jar}", self.shown, meta=plain)

    def shown(self, response: Response) -> Any:
        return response.json()  # type: ignore[attr-defined]


class GivenCookies(SiteSpider):
    name = "given_cookies"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        jar = {"cookiejar": "a"}
        yield self.get("/echo/1", self.shown, cookies={"a": "1", "b": "two"}, meta=jar)
        listed = [{"name": "c", "value": "3", "path": "/"}]
        yield self.get("/echo/2", self.shown, cookies=listed, meta={"cookiejar": "b"})

    def shown(self, response: Response) -> Any:
        return response.json()  # type: ignore[attr-defined]


class Redirects(SiteSpider):
    name = "redirects"
    custom_settings = {"REDIRECT_MAX_TIMES": 5}

    async def start(self) -> AsyncIterator[Any]:
        for status in (301, 302, 303, 307, 308):
            yield self.get(f"/redirect/{status}?to=/leaf/{status}", errback=self.failed)
        yield self.get("/refresh?to=/leaf/refreshed")
        yield self.get("/chain/4", cb_kwargs={"tag": "chain"}, meta={"mine": [1]})
        yield self.get("/chain/7", errback=self.failed)
        yield self.get("/loop/a", errback=self.failed)
        yield self.get(
            "/redirect/302?to=/leaf/no", meta={"dont_redirect": True, "handle_httpstatus_all": True}
        )
        yield self.get("/redirect/302?to=/heal/1/moved")
        yield self.get("/redirect/302?to=/status/404", errback=self.failed)
        post = self.get("/redirect/303?to=/echo/posted", self.echo, method="POST", body="a=b")
        yield post
        yield self.get("/redirect/307?to=/echo/kept", self.echo, method="POST", body="a=c")

    def parse(self, response: Response, tag: str = "") -> Iterator[Any]:
        mine = response.meta.get("mine")
        times = response.meta.get("redirect_times")
        yield show(response, tag=tag, mine=mine, times=times, urls=response.meta.get("redirect_urls"))

    def echo(self, response: Response) -> Any:
        return response.json()  # type: ignore[attr-defined]

    def failed(self, failure: Failure) -> Any:
        return [{"failed": repr(failure.value), "url": failure.request.url}]  # type: ignore[attr-defined]


class RedirectToSeen(SiteSpider):
    """Redirects to pages that are known; Scrapy follows those of start requests, drops the others."""

    name = "redirect_to_seen"
    custom_settings = {"CONCURRENT_REQUESTS": 1}
    start_paths = ["/leaf/1"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield self.get("/leaf/2", self.more, priority=10)

    def more(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield self.get("/redirect/302?to=/leaf/2", self.parse_end)
        yield self.get("/redirect/302?to=/leaf/2&dont", self.parse_end, dont_filter=True)
        yield self.get("/redirect/301?to=/leaf/3", self.parse_end)
        yield self.get("/redirect/302?to=/leaf/3", self.parse_end)
        yield self.get("/leaf/3", self.parse_end)
        yield self.get("/redirect/301?to=/leaf/3", self.parse_end)

    def parse_end(self, response: Response) -> Any:
        return show(response, urls=response.meta.get("redirect_urls"))


class Retries(SiteSpider):
    name = "retries"
    custom_settings = {"RETRY_TIMES": 2}

    async def start(self) -> AsyncIterator[Any]:
        yield self.get("/heal/1/once", cb_kwargs={"tag": "a"})
        yield self.get("/heal/2/twice", priority=4)
        yield self.get("/heal/9/never", errback=self.failed)
        yield self.get("/heal/3/longer", meta={"max_retry_times": 4})
        yield self.get("/heal/1/dont", meta={"dont_retry": True}, errback=self.failed)
        yield self.get("/dropped/1/x")
        yield self.get("/busy/2/x", meta={"handle_httpstatus_list": [429]})
        yield self.get("/status/503", errback=self.failed)
        yield self.refused("/x", errback=self.failed)
        yield self.get("/leaf/again", self.again)

    def parse(self, response: Response, tag: str = "") -> Any:
        return show(response, tag=tag, times=response.meta.get("retry_times"))

    def again(self, response: Response) -> Iterator[Any]:
        yield show(response, times=response.meta.get("retry_times"))
        assert response.request is not None
        retry = get_retry_request(response.request, spider=self, reason="not good enough")
        if retry:
            yield retry

    def failed(self, failure: Failure) -> Any:
        path = failure.request.url.partition("/heal")[2]  # type: ignore[attr-defined]
        return [{"failed": type(failure.value).__name__, "path": path}]


class DontFilter(SiteSpider):
    name = "dont_filter"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response, left: int = 3) -> Iterator[Any]:
        yield show(response, left=left)
        if left and response.request:
            yield response.request.replace(dont_filter=True, cb_kwargs={"left": left - 1})
            yield self.get("/leaf/1", self.leaf, dont_filter=True)
            yield self.get("/leaf/1", self.leaf)
            yield self.get("/leaf/2", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


class SameUrl(SiteSpider):
    """Which requests count as the same: canonical URLs, methods, bodies."""

    name = "same_url"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        for path in (
            "/leaf/1?b=2&a=1",
            "/leaf/1?a=1&b=2",
            "/leaf/1?a=1&b=2#frag",
            "/leaf/%31?a=1&b=2",
            "/leaf/1?a=1",
        ):
            yield self.get(path, self.leaf)
        for body in ("x", "y", "x", ""):
            yield self.get("/echo/post", self.leaf, method="POST", body=body)
        for method in ("GET", "POST", "PUT", "HEAD", "HEAD"):
            yield self.get("/echo/method", self.leaf, method=method)

    def leaf(self, response: Response) -> Any:
        assert response.request is not None
        return {"method": response.request.method, "url": response.url.partition("?")[0]}


class SameObject(SiteSpider):
    """One Request object yielded twice, and the request of the response yielded again."""

    name = "same_object"
    vague = DEPTH
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        request = self.get("/leaf/1", self.leaf)
        yield request
        yield request
        if "again" not in response.meta:
            response.meta["again"] = True
            yield response.request

    def leaf(self, response: Response) -> Any:
        return show(response)


class PathFingerprinter:
    """Takes pages for the same whatever their query."""

    def fingerprint(self, request: Request) -> bytes:
        if "/echo" in request.url:
            return fingerprint(request, include_headers=["X-Extra"])
        return fingerprint(request.replace(url=request.url.partition("?")[0]))


class Fingerprinter(SiteSpider):
    name = "fingerprinter"
    custom_settings = {"REQUEST_FINGERPRINTER_CLASS": PathFingerprinter, "CONCURRENT_REQUESTS": 1}
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(3):
            yield self.get(f"/leaf/1?page={number}", self.leaf, priority=-number)
            yield self.get("/echo/a", self.leaf, headers={"X-Extra": str(number)})
        yield self.get("/echo/a", self.leaf, headers={"X-Extra": "1"})

    def leaf(self, response: Response) -> Any:
        return show(response)


class NoDupeFilter(SiteSpider):
    """A dupefilter class of the user's own choice."""

    name = "no_dupe_filter"
    custom_settings = {"DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter"}
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number in (1, 2, 1, 1):
            yield self.get(f"/leaf/{number}", self.leaf)

    def leaf(self, response: Response) -> Any:
        return show(response)


class Tagged(Request):
    """A user's own kind of request."""

    attributes = (*Request.attributes, "tag")

    def __init__(self, *args: Any, tag: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tag = tag


class Forms(SiteSpider):
    """Every kind of request with a body, and headers that arrive as they were given."""

    name = "forms"
    http_user = "anne"
    http_pass = "secret"
    http_auth_domain = None
    start_paths = ["/form"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield FormRequest(self.base + "/echo/1", formdata={"a": "1", "b": ["2", "3"]}, callback=self.shown)
        yield FormRequest(self.base + "/echo/2", method="GET", formdata={"q": "x y"}, callback=self.shown)
        if hasattr(FormRequest, "from_response"):
            yield FormRequest.from_response(response, formdata={"q": "z"}, callback=self.shown)  # type: ignore[arg-type]
        yield JsonRequest(self.base + "/echo/3", data={"a": [1, None, "\u00fc"]}, callback=self.shown)
        yield JsonRequest(self.base + "/echo/4", callback=self.shown, dumps_kwargs={"indent": 1})
        yield XmlRpcRequest(self.base + "/echo/5", params=(1, "x"), methodname="do", callback=self.shown)
        yield self.get("/echo/6", self.shown, method="PUT", body=b"\x00\xff\xfe")
        yield self.get("/echo/7", self.shown, method="DELETE", headers={"X-Extra": "gr\u00fcn"})
        yield self.get("/echo/8", self.shown, headers={"X-Extra": ["a", "b"], "Accept": "*/*"})
        yield self.get("/echo/9", self.shown, headers={"User-Agent": "me", "Referer": None})
        yield self.get("/echo/\u00fc?q=\u00e4 b", self.shown, encoding="latin-1")
        yield Tagged(self.base + "/echo/10", self.tagged, tag="mine")
        curl = f"curl '{self.base}/echo/11' -H 'X-Extra: curl' -d 'a=1' -b 'k=v'"
        yield Request.from_curl(curl, callback=self.shown, meta={"cookiejar": "curl"})

    def shown(self, response: Response) -> Any:
        assert response.request is not None
        return {**response.json(), "class": type(response.request).__name__}  # type: ignore[attr-defined]

    def tagged(self, response: Response) -> Any:
        request = response.request
        assert isinstance(request, Tagged)
        return {"class": "Tagged", "tag": request.tag}


class DepthLimit(SiteSpider):
    name = "depth_limit"
    custom_settings = {"DEPTH_LIMIT": 2, "DEPTH_STATS_VERBOSE": True}
    start_paths = ["/tree/r"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response, depth=response.meta["depth"])
        yield from self.follow(response)


class DepthThenShallow(SiteSpider):
    """A page dropped because of its depth is crawled when it is met again nearer."""

    name = "depth_then_shallow"
    custom_settings = {"DEPTH_LIMIT": 2, "CONCURRENT_REQUESTS": 1}
    start_paths = ["/tree/r.1"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response, depth=response.meta["depth"])
        yield from self.follow(response, priority=10)
        if response.url.endswith("/tree/r.1"):
            yield self.get("/leaf/late", self.late, priority=-5)

    def late(self, response: Response) -> Iterator[Any]:
        yield self.get("/tree/r.1.1.1.1", self.parse)
        yield self.get("/tree/r.1.1.1", self.parse)
        yield self.get("/tree/r.9.9.9", self.parse)


class Offsite(SiteSpider):
    name = "offsite"
    allowed_domains = ["127.0.0.1"]
    start_paths = ["/both"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response)
        if response.url.endswith("/both"):
            yield Request(self.other + "/leaf/9", meta={"allow_offsite": True})
            yield Request(self.other + "/leaf/8", dont_filter=True)
            yield self.get("/redirect/302?to=/leaf/7")


class OffsiteThenOnsite(SiteSpider):
    """A page dropped as offsite is crawled once its host is allowed."""

    name = "offsite_then_onsite"
    custom_settings = {"CONCURRENT_REQUESTS": 1}
    allowed_domains = ["127.0.0.1"]
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield Request(self.other + "/leaf/5", self.leaf, priority=5)
        yield self.get("/leaf/1", self.again)

    def again(self, response: Response) -> Iterator[Any]:
        yield Request(self.other + "/leaf/5", self.leaf, meta={"allow_offsite": True})

    def leaf(self, response: Response) -> Any:
        return show(response)


class Robots(SiteSpider):
    name = "robots"
    vague = DEPTH
    custom_settings = {"ROBOTSTXT_OBEY": True}
    start_paths = ["/leaf/0", "/hidden/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield self.get("/hidden/1", self.parse, errback=self.failed)
        yield self.get("/leaf/1", self.parse)

    def failed(self, failure: Failure) -> Any:
        return [{"failed": repr(failure.value)}]


class Unusual(SiteSpider):
    """Addresses that are no web pages, and ones that cannot be fetched."""

    name = "unusual"
    start_paths = ["/leaf/0"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield Request("data:,hello%20there", self.text)
        yield Request("nosuch://host/path", self.text, errback=self.failed)
        yield Request("data:text/plain,x", self.text, errback=self.failed)
        yield self.get(
            "/slow/400", self.text, meta={"download_timeout": 0.1, "dont_retry": True}, errback=self.failed
        )
        yield self.get("/leaf/1", self.text, meta={"download_slot": "mine"})

    def text(self, response: Response) -> Any:
        return {"url": response.url, "slot": "mine" if response.meta.get("download_slot") == "mine" else None}

    def failed(self, failure: Failure) -> Any:
        return [{"failed": failure.request.url}]  # type: ignore[attr-defined]


class Referer(SiteSpider):
    name = "referer"
    start_paths = ["/tree/r.1.1"]

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(3):
            yield self.get(f"/echo/{number}", self.shown)

    def shown(self, response: Response) -> Any:
        return response.json()  # type: ignore[attr-defined]


SPIDERS: list[type[SiteSpider]] = [
    Cookies,
    CookieJars,
    GivenCookies,
    Redirects,
    RedirectToSeen,
    Retries,
    DontFilter,
    SameUrl,
    SameObject,
    Fingerprinter,
    NoDupeFilter,
    Forms,
    DepthLimit,
    DepthThenShallow,
    Offsite,
    OffsiteThenOnsite,
    Robots,
    Unusual,
    Referer,
]
