"""The site's server: just enough HTTP/1.1, fast, and exact about what it logs.

The log is written before the answer is sent: what a client has received is always in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections import Counter
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl

from scrapy_fleet.ops.site.shape import Site


class Book:
    """What was asked and answered: the log file, and the counts behind ``/_stats``."""

    def __init__(self, log: Path | None) -> None:
        self._file = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._served: set[str] = set()
        self._answers: Counter[int] = Counter()
        self._arrivals = 0
        self._left = 0
        self._visits = 0
        self._waiting: list[tuple[dict[str, int], asyncio.Future[None]]] = []

    def write(self, *lines: str) -> None:
        """One write for whole lines, so that a reader never meets half a line."""
        if self._file is not None:
            os.write(self._file, "".join(lines).encode())

    def arrive(self, host: str, path: str) -> str:
        self._arrivals += 1
        self._notice()
        return f"{time.monotonic():.6f}\tarrive\t{host}\t{path}\t-\n"

    def done(self, host: str, path: str, status: int) -> str:
        self._answers[status] += 1
        if status == HTTPStatus.OK and path.startswith("/p/"):
            self._visits += 1
            self._served.add(path)
        self._notice()
        return f"{time.monotonic():.6f}\tdone\t{host}\t{path}\t{status}\n"

    def left(self, host: str, path: str) -> str:
        """The client went away before it had its answer."""
        self._left += 1
        self._notice()
        return f"{time.monotonic():.6f}\tleft\t{host}\t{path}\t-\n"

    def counts(self) -> dict[str, int]:
        answers = {f"status_{status}": count for status, count in sorted(self._answers.items())}
        totals = {"arrivals": self._arrivals, "left": self._left, "visits": self._visits}
        return {**totals, "pages": len(self._served), **answers}

    async def reached(self, goal: dict[str, int]) -> None:
        """Return once every count in ``goal`` is that high."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((goal, future))
        self._notice()
        await future

    def _notice(self) -> None:
        """Wake those who waited for a count that is reached; they go on after the log is written."""
        if not self._waiting:
            return
        counts = self.counts()
        still = []
        for goal, future in self._waiting:
            if all(counts.get(name, 0) >= least for name, least in goal.items()):
                if not future.done():
                    future.set_result(None)
            else:
                still.append((goal, future))
        self._waiting = still


def answer(status: int, body: bytes, header: str = "Content-Type: text/html; charset=utf-8") -> bytes:
    phrase = HTTPStatus(status).phrase
    head = f"HTTP/1.1 {status} {phrase}\r\n{header}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Answers:
    """From a path to the bytes of its answer; knows how often a failing page has failed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._failed: Counter[int] = Counter()
        self._gone = answer(404, b"<html><body>Not here</body></html>")
        self._failure = answer(500, b"<html><body>Not now</body></html>")

    def of(self, path: str) -> tuple[int, bytes, float]:
        """Status, answer, and how many seconds to wait before it is sent."""
        section, _, tail = path[1:].partition("/")
        n = int(tail) if tail.isdecimal() else -1
        if 0 <= n < self._site.shape.pages:
            if section == "p":
                return self._page(n)
            if section == "r":
                status = 302 if n % 2 else 301
                return status, answer(status, b"", f"Location: {self._site.url(f'/p/{n}')}"), 0.0
        if path == "/robots.txt":
            return 200, answer(200, b"User-agent: *\nAllow: /\n", "Content-Type: text/plain"), 0.0
        return 404, self._gone, 0.0

    def _page(self, n: int) -> tuple[int, bytes, float]:
        delay = self._site.delays.get(n, 0.0)
        if n in self._site.failing and self._failed[n] < self._site.shape.fails:
            self._failed[n] += 1
            return 500, self._failure, delay
        return 200, answer(200, self._site.body(n)), delay


class Connection(asyncio.Protocol):
    """One client connection: requests one after the other, kept alive."""

    def __init__(self, answers: Answers, book: Book) -> None:
        self._answers = answers
        self._book = book
        self._transport: asyncio.Transport
        self._received = b""
        self._pending: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pending is not None:
            self._pending.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._go_on()

    def _go_on(self) -> None:
        while self._pending is None and not self._transport.is_closing():
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if not end:
                return
            lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return
            self._received = rest[length:]
            self._request(lines[0], headers)

    def _request(self, line: str, headers: dict[str, str]) -> None:
        method, target, version = line.split(" ", 2)
        path, _, query = target.partition("?")
        host = headers.get("host", "").partition(":")[0]
        last = version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
        if path == "/_stats":
            goal = {name: int(least) for name, least in parse_qsl(query)}
            self._pending = asyncio.ensure_future(self._stats(goal, last))
            return
        arrived = self._book.arrive(host, path)
        status, data, delay = self._answers.of(path)
        if method == "HEAD":
            data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        if delay:
            self._book.write(arrived)
            self._pending = asyncio.ensure_future(self._later(delay, host, path, status, data, last))
        else:
            self._book.write(arrived, self._book.done(host, path, status))
            self._send(data, last)

    async def _later(self, delay: float, host: str, path: str, status: int, data: bytes, last: bool) -> None:
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self._book.write(self._book.left(host, path))
            raise
        self._pending = None
        self._book.write(self._book.done(host, path, status))
        self._send(data, last)
        self._go_on()

    async def _stats(self, goal: dict[str, int], last: bool) -> None:
        await self._book.reached(goal)
        self._pending = None
        self._send(
            answer(200, json.dumps(self._book.counts()).encode(), "Content-Type: application/json"), last
        )
        self._go_on()

    def _send(self, data: bytes, last: bool) -> None:
        self._transport.write(data)
        if last:
            self._transport.close()


def listen(site: Site, port: int) -> list[socket.socket]:
    """A socket for every host of the site, all on one port; only this machine can reach them."""
    sockets: list[socket.socket] = []
    for address in site.hosts():
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        port = sock.getsockname()[1]
        sockets.append(sock)
    return sockets


async def serve(site: Site, sockets: list[socket.socket], log: Path | None) -> None:
    """Serve until cancelled."""
    answers, book = Answers(site), Book(log)
    site.port = sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    for sock in sockets:
        await loop.create_server(lambda: Connection(answers, book), sock=sock, backlog=1024)
    print(f"listening on {site.port}", flush=True)
    await loop.create_future()
