"""A server further away: a TCP proxy, in a process of its own, that holds back what goes through it.

``with far(6379, 0.005) as proxy:`` makes a port ``proxy.port`` on which the server answers 5 ms later.
Its counts are what a client costs the network: a *round trip* is a client that speaks after the server
spoke, however many commands it sends at once and however many packets that takes.

``proxy.away()``: all connections are reset and new ones refused, as of a server that is down, until
``proxy.back()``.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks.measure import ROOT


class Traffic(NamedTuple):
    """What went through so far."""

    trips: int = 0
    to_server: int = 0
    to_client: int = 0

    def since(self, before: Traffic) -> Traffic:
        return Traffic(*(now - then for now, then in zip(self, before, strict=True)))


class Proxy:
    """The parent's view of a proxy."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._ask(""))

    def traffic(self) -> Traffic:
        return Traffic(*json.loads(self._ask("count\n")))

    def away(self) -> None:
        self._ask("away\n")

    def back(self) -> None:
        self._ask("back\n")

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the proxy ended")
        return answer


@contextmanager
def far(port: int, round_trip: float) -> Iterator[Proxy]:
    """A way to the server on this port that takes so long there and back, as measured with PING."""
    with delayed(port, round_trip) as probed:
        surplus = ping(probed.port) - round_trip  # the proxy's own work, and late timers
    with delayed(port, max(0.0, round_trip - surplus)) as proxy:
        yield proxy


def ping(port: int, times: int = 50) -> float:
    """The usual round trip to a server, in seconds."""
    found = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(times):
            began = time.perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(100)
            found.append(time.perf_counter() - began)
    return statistics.median(found)


@contextmanager
def delayed(port: int, delay: float) -> Iterator[Proxy]:
    """A way to any server, on which what goes there and back is held back for so long."""
    command = [sys.executable, "-m", "benchmarks.proxy", str(port), str(delay)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Proxy(process)
        finally:
            process.kill()


# In the process of the proxy


class Counter:
    def __init__(self) -> None:
        self.trips = self.to_server = self.to_client = 0


class Pipe(asyncio.Protocol):
    """One end of a connection; what it reads comes out of the other end after a while."""

    def __init__(self, counter: Counter, delay: float, client: bool) -> None:
        self._counter = counter
        self._delay = delay
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._held: deque[bytes] = deque()
        self._transport: asyncio.Transport | None = None
        self.other: Pipe
        self.spoke_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._client:
            transport.pause_reading()  # until there is somewhere to pass it on to
        else:
            assert self.other._transport is not None
            self.other._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._client:
            self._counter.to_server += len(data)
            self._counter.trips += not self.spoke_last
        else:
            self._counter.to_client += len(data)
        self.spoke_last, self.other.spoke_last = True, False
        self._held.append(data)
        self._loop.call_later(self._delay, self._pass_on)

    def _pass_on(self) -> None:
        # The oldest, whichever timer comes first: nothing overtakes.
        if self.other._transport is not None:
            self.other._transport.write(self._held.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        self._loop.call_later(self._delay, self.other.end)

    def end(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()


class Door:
    """Where clients come in."""

    def __init__(self, port: int, delay: float, counter: Counter) -> None:
        self._loop = asyncio.get_running_loop()
        self._target = port
        self._delay = delay
        self._counter = counter
        self._near: weakref.WeakSet[Pipe] = weakref.WeakSet()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server
        self.port = 0

    async def open(self) -> None:
        self._server = await self._loop.create_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        self._server.close()
        for near in list(self._near):
            near.reset()

    def _accepted(self) -> Pipe:
        near, far = (Pipe(self._counter, self._delay / 2, client=client) for client in (True, False))
        near.other, far.other = far, near
        task = self._loop.create_task(self._loop.create_connection(lambda: far, "127.0.0.1", self._target))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        self._near.add(near)
        return near


def answer_parent(counter: Counter, door: Door, loop: asyncio.AbstractEventLoop) -> None:
    changes = {"away": door.shut, "back": door.open}
    try:
        for line in sys.stdin:
            if change := changes.get(line.strip()):
                asyncio.run_coroutine_threadsafe(change(), loop).result()
            print(json.dumps([counter.trips, counter.to_server, counter.to_client]), flush=True)
    except OSError as error:
        print(error, file=sys.stderr, flush=True)
    os._exit(0)  # the parent is gone, or must not wait for an answer


async def serve(port: int, delay: float) -> None:
    counter = Counter()
    door = Door(port, delay, counter)
    await door.open()
    loop = asyncio.get_running_loop()
    threading.Thread(target=answer_parent, args=(counter, door, loop), daemon=True).start()
    print(door.port, flush=True)
    await loop.create_future()


def main() -> None:
    # epoll rounds waiting times up to whole milliseconds, select does not.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(serve(int(sys.argv[1]), float(sys.argv[2])))


if __name__ == "__main__":
    main()
