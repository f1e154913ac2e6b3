"""A TCP proxy that stands between workers and their server, and can hurt the connection."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

Moment = Literal["before", "in the middle of", "after"]


class Proxy:
    """Passes everything on, until it is told otherwise.

    ``stall()``: it takes what comes and passes nothing on, until ``resume()``; connections that were stalled
    are then cut, as a firewall that has forgotten them does. ``cut(...)``: connections are reset when a
    certain request comes by.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = int(self._listening.getsockname()[1])
        self._stalled = threading.Event()
        self._over = threading.Event()
        self._moment: Moment = "after"
        self._chosen: Callable[[bytes], bool] = lambda request: False
        self._lock = threading.Lock()
        self.cuts = 0
        """How many connections were reset."""
        self._threads: list[threading.Thread] = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._listening.close()
        for thread in list(self._threads):
            thread.join(10)

    # Hurting

    def stall(self) -> None:
        self._stalled.set()

    def resume(self) -> None:
        self._stalled.clear()

    def cut(self, moment: Moment, chosen: Callable[[bytes], bool]) -> None:
        """Reset the connection before, in the middle of, or after passing on a request that is chosen;
        after: the server has answered, but its answer goes nowhere."""
        with self._lock:
            self._moment, self._chosen = moment, chosen

    # Passing on

    def _accept(self) -> None:
        while not self._over.is_set():
            if not select.select([self._listening], [], [], 0.1)[0]:
                continue
            try:
                client = self._listening.accept()[0]
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:
            _reset(client)
            return
        with client, server, contextlib.suppress(OSError):
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        stalled = drop_answer = False
        while not self._over.is_set():
            if self._stalled.is_set():
                stalled = True
                self._over.wait(0.02)
                continue
            if stalled:
                _reset(client)
                return
            ready = select.select([client, server], [], [], 0.05)[0]
            if self._stalled.is_set():
                continue
            if client in ready:
                if not (request := client.recv(1 << 20)):
                    return
                with self._lock:
                    moment = self._moment if self._chosen(request) else None
                    self.cuts += moment is not None
                if moment in ("before", "in the middle of"):
                    if moment != "before":
                        server.sendall(request[: len(request) // 2])
                    _reset(client)
                    return
                drop_answer = drop_answer or moment == "after"
                server.sendall(request)
            if server in ready:
                answer = server.recv(1 << 20)
                if not answer or drop_answer:
                    _reset(client)
                    return
                client.sendall(answer)


def _reset(sock: socket.socket) -> None:
    """Close it so that the other side sees a reset."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
