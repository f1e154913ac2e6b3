"""A small site with the special cases of the web: redirects, cookies, errors that heal, feeds, files.

The first part of every path names a run (``/run-7/...``). Counters and the log of visits are kept per
run, so that many crawls can use one site and what each of them fetched can be compared.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

OTHER_HOST = "localhost"
"""The same site under a second name, for what depends on hosts."""

GRAPH_SIZE = 40


@dataclass(frozen=True)
class Visit:
    """One request as the site saw it."""

    run: str
    method: str
    host: str
    path: str
    """With the query, without the run."""
    body: str
    headers: dict[str, str] = field(hash=False, compare=False, default_factory=dict)
    at: float = field(hash=False, compare=False, default_factory=time.monotonic)

    def __str__(self) -> str:
        other = "other " if self.host == OTHER_HOST else ""
        return f"{self.method} {other}{self.path} {self.body}".rstrip()

    @property
    def route(self) -> list[str]:
        return urlsplit(self.path).path.strip("/").split("/")

    def query(self, name: str, default: str = "") -> str:
        return parse_qs(urlsplit(self.path).query).get(name, [default])[0]


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    type: str = "text/html; charset=utf-8"
    headers: list[tuple[str, str]] = field(default_factory=list)
    pause: float = 0.0
    missing: int = 0
    """Close the connection when so many bytes are still to come."""


def page(title: str, *links: str, extra: str = "") -> Answer:
    anchors = "".join(f'<a href="{link}">{link}</a>\n' for link in links)
    text = f"<html><head><title>{title}</title></head><body>{anchors}{extra}</body></html>"
    return Answer(text.encode())


class Site:
    """Runs in a thread of its own; use as a context manager."""

    def __init__(self, listener: socket.socket | None = None, tls: ssl.SSLContext | None = None) -> None:
        """``listener``: where it is to be found, a socket that is bound."""
        self.port = 0
        self._tls = tls
        self._listener = listener
        self._visits: dict[str, list[Visit]] = defaultdict(list)
        self._together: Counter[tuple[str, str]] = Counter()
        self._most_together: Counter[tuple[str, str]] = Counter()
        self._counters: Counter[tuple[str, str]] = Counter()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="special-site", daemon=True)

    def __enter__(self) -> Site:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def base(self, run: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{run}"

    def visits(self, run: str) -> list[Visit]:
        """What the site saw of a run, in the order of arrival."""
        return list(self._visits[run])

    def most_together(self, run: str) -> dict[str, int]:
        """How many requests of a run were answered at the same time at most, per host and in all (``""``)."""
        return {host: most for (name, host), most in self._most_together.items() if name == run}

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        connections: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await self._talk(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # the crawler has closed the connection, or the site is closing
            finally:
                connections.discard(task)
                writer.close()

        if self._listener is not None:
            server = await asyncio.start_server(accept, sock=self._listener, ssl=self._tls)
        else:
            server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            method, target, _ = line.decode("latin-1").split()
            headers: dict[str, str] = {}
            while (raw := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = raw.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            run, _, path = target.lstrip("/").partition("/")
            host = headers.get("host", "").partition(":")[0]
            visit = Visit(run, method, host, "/" + path, body.decode("latin-1"), headers)
            self._visits[run].append(visit)
            answer = self._answer(visit)
            keys = ((run, host), (run, ""))
            for key in keys:
                self._together[key] += 1
                self._most_together[key] = max(self._most_together[key], self._together[key])
            if answer.pause:
                await asyncio.sleep(answer.pause)
            for key in keys:  # before the answer is sent: the crawler may be quicker with its next request
                self._together[key] -= 1
            head = [f"HTTP/1.1 {answer.status} Status", f"Content-Type: {answer.type}"]
            head += [f"{name}: {value}" for name, value in answer.headers]
            head.append(f"Content-Length: {len(answer.body) + answer.missing}")
            content = b"" if method == "HEAD" else answer.body
            writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + content)
            await writer.drain()
            if answer.missing or ("Connection", "close") in answer.headers:
                return

    def _answer(self, visit: Visit) -> Answer:
        if visit.run == "robots.txt":
            return Answer(b"User-agent: *\nDisallow: /*/hidden/\n", type="text/plain")
        route = ROUTES.get(visit.route[0])
        return route(self, visit) if route else Answer(b"no such page", 404)

    def count(self, visit: Visit) -> int:
        """How often this run has been here, this time included."""
        key = (visit.run, visit.path)
        self._counters[key] += 1
        return self._counters[key]

    # The routes. Each gets the visit; ``visit.route`` is its path in parts.

    def graph(self, visit: Visit) -> Answer:
        """Pages with many links to pages that others link to."""
        number = int(visit.route[1])
        targets = [2 * number + 1, 2 * number + 2, number // 2, number, 0, (number * 7 + 3) % GRAPH_SIZE]
        links = [f"/{visit.run}/graph/{target}" for target in targets if target < GRAPH_SIZE]
        return page(f"graph {number}", *links)

    def tree(self, visit: Visit) -> Answer:
        """Exactly one link to each page: ``/tree/r``, ``/tree/r.1``, ``/tree/r.1.3``; three levels."""
        name = visit.route[1]
        children = [f"{name}.{number}" for number in range(1, 4)] if name.count(".") < 3 else []
        return page(f"tree {name}", *(f"/{visit.run}/tree/{child}" for child in children))

    def leaf(self, visit: Visit) -> Answer:
        return page(f"leaf {visit.route[1]}")

    def both(self, visit: Visit) -> Answer:
        """Links to pages of both hosts."""
        hosts = ("127.0.0.1", OTHER_HOST)
        return page("both", *(f"{self.base(visit.run, host)}/leaf/{n}" for n in range(4) for host in hosts))

    def endless(self, visit: Visit) -> Answer:
        number = int(visit.route[1])
        return page(f"endless {number}", *(f"/{visit.run}/endless/{number * 3 + n}" for n in (1, 2, 3)))

    def status(self, visit: Visit) -> Answer:
        return Answer(f"status {visit.route[1]}".encode(), int(visit.route[1]))

    def heal(self, visit: Visit) -> Answer:
        """``/heal/<times>/<name>``: an error so many times, then a page."""
        if self.count(visit) <= int(visit.route[1]):
            return Answer(b"not yet", 500)
        return page(f"healed {visit.route[2]}")

    def busy(self, visit: Visit) -> Answer:
        """``/busy/<times>/<name>``: too many requests, come back at once."""
        if self.count(visit) <= int(visit.route[1]):
            return Answer(b"busy", 429, headers=[("Retry-After", "0")])
        return page(f"served {visit.route[2]}")

    def refuse(self, visit: Visit) -> Answer:
        """``/refuse/<status>/<times>/<name>``: refuses so many times. ``after``: for how many seconds;
        ``date``: it says so as a date, by a clock that is so many seconds ahead."""
        if self.count(visit) > int(visit.route[2]):
            return page(f"granted {visit.route[3]}")
        answer = Answer(b"refused", int(visit.route[1]))
        after = visit.query("after")
        if ahead := visit.query("date"):
            now = time.time() + float(ahead)
            answer.headers.append(("Date", formatdate(now, usegmt=True)))
            after = formatdate(now + float(after), usegmt=True)
        if after:
            answer.headers.append(("Retry-After", after))
        return answer

    def dropped(self, visit: Visit) -> Answer:
        """``/dropped/<times>/<name>``: the connection is closed so many times.

        It is closed in the middle of the page: before it, HTTP clients may ask again by themselves.
        """
        answer = page("there")
        if self.count(visit) <= int(visit.route[1]):
            answer.missing = 100
        return answer

    def last(self, visit: Visit) -> Answer:
        """The connection is closed after it."""
        answer = page(f"last {visit.route[1]}")
        answer.headers.append(("Connection", "close"))
        return answer

    def slow(self, visit: Visit) -> Answer:
        answer = page(f"slow {visit.route[1]}")
        answer.pause = int(visit.route[1]) / 1000
        return answer

    def redirect(self, visit: Visit) -> Answer:
        """``/redirect/<status>?to=<path of this run>``."""
        target = f"/{visit.run}{visit.query('to')}"
        return Answer(b"moved", int(visit.route[1]), headers=[("Location", target)])

    def refresh(self, visit: Visit) -> Answer:
        target = f"/{visit.run}{visit.query('to')}"
        return Answer(
            f'<html><head><meta http-equiv="refresh" content="0; url={target}"></head></html>'.encode()
        )

    def chain(self, visit: Visit) -> Answer:
        """``/chain/<n>`` redirects n times."""
        left = int(visit.route[1])
        if left == 0:
            return page("end of chain")
        return Answer(status=302, headers=[("Location", f"/{visit.run}/chain/{left - 1}")])

    def loop(self, visit: Visit) -> Answer:
        return Answer(status=302, headers=[("Location", f"/{visit.run}/loop/{visit.route[1]}")])

    def login(self, visit: Visit) -> Answer:
        """Sets a cookie and redirects to the page that shows it."""
        cookie = f"user={visit.query('user', 'anne')}; Path=/"
        return Answer(status=302, headers=[("Set-Cookie", cookie), ("Location", f"/{visit.run}/echo/me")])

    def session(self, visit: Visit) -> Answer:
        """Counts the visits of a session in its cookie."""
        cookies = SimpleCookie(visit.headers.get("cookie", ""))
        number = int(cookies["count"].value) + 1 if "count" in cookies else 1
        answer = page(f"visit {number}")
        answer.headers.append(("Set-Cookie", f"count={number}; Path=/"))
        return answer

    def echo(self, visit: Visit) -> Answer:
        names = ("cookie", "referer", "content-type", "x-extra", "authorization", "user-agent", "accept")
        shown = {name: visit.headers[name] for name in names if name in visit.headers}
        text = {"method": visit.method, "path": visit.path, "body": visit.body, "headers": shown}
        return Answer(json.dumps(text, sort_keys=True).encode(), type="application/json")

    def form(self, visit: Visit) -> Answer:
        return page(
            "form",
            extra=f'<form method="post" action="/{visit.run}/echo/form">'
            '<input name="token" value="t1"><input name="q"><input type="submit" name="go"></form>',
        )

    def robots(self, visit: Visit) -> Answer:
        base = self.base(visit.run)
        return Answer(
            f"User-agent: *\nDisallow: /{visit.run}/leaf/2\nSitemap: {base}/sitemap/index.xml\n".encode()
        )

    def sitemap(self, visit: Visit) -> Answer:
        base = self.base(visit.run)
        head = '<?xml version="1.0" encoding="UTF-8"?>'
        space = (
            'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml"'
        )
        if visit.route[1] == "index.xml":
            names = ("a.xml", "b.xml.gz")
            maps = "".join(f"<sitemap><loc>{base}/sitemap/{name}</loc></sitemap>" for name in names)
            return Answer(f"{head}<sitemapindex {space}>{maps}</sitemapindex>".encode(), type="text/xml")
        first = 0 if visit.route[1] == "a.xml" else 10
        urls = "".join(
            f"<url><loc>{base}/{kind}/{first + n}</loc><lastmod>2024-01-0{n + 1}</lastmod>"
            f'<xhtml:link rel="alternate" hreflang="de" href="{base}/{kind}/{first + n}?de"/></url>'
            for n in range(4)
            for kind in ("leaf", "graph")
        )
        body = f"{head}<urlset {space}>{urls}</urlset>".encode()
        if visit.route[1].endswith(".gz"):
            return Answer(gzip.compress(body, mtime=0), type="application/gzip")
        return Answer(body, type="text/xml")

    def feed(self, visit: Visit) -> Answer:
        if visit.route[1] == "items.csv":
            rows = "".join(f"{n},row {n}\n" for n in range(5))
            return Answer(f"id,name\n{rows}".encode(), type="text/csv")
        items = "".join(f"<item><id>{n}</id><link>/{visit.run}/leaf/{n}</link></item>" for n in range(5))
        return Answer(f'<?xml version="1.0"?><rss>{items}</rss>'.encode(), type="text/xml")

    def files(self, visit: Visit) -> Answer:
        """Documents, and a page that links to them."""
        if visit.route[1] == "index":
            names = ("one.txt", "two.bin", "one.txt", "moved.txt", "missing.txt")
            return page("files", *(f"/{visit.run}/files/{name}" for name in names))
        if visit.route[1] == "moved.txt":
            return Answer(status=302, headers=[("Location", f"/{visit.run}/files/two.bin")])
        if visit.route[1] == "missing.txt":
            return Answer(b"", 404)
        return Answer(f"content of {visit.route[1]}".encode() * 10, type="application/octet-stream")


Route = Callable[[Site, Visit], Answer]

ROUTES: dict[str, Route] = {
    "graph": Site.graph,
    "tree": Site.tree,
    "leaf": Site.leaf,
    "hidden": Site.leaf,
    "both": Site.both,
    "endless": Site.endless,
    "status": Site.status,
    "heal": Site.heal,
    "busy": Site.busy,
    "refuse": Site.refuse,
    "dropped": Site.dropped,
    "last": Site.last,
    "slow": Site.slow,
    "redirect": Site.redirect,
    "refresh": Site.refresh,
    "chain": Site.chain,
    "loop": Site.loop,
    "login": Site.login,
    "session": Site.session,
    "echo": Site.echo,
    "form": Site.form,
    "robots.txt": Site.robots,
    "sitemap": Site.sitemap,
    "feed": Site.feed,
    "files": Site.files,
}
