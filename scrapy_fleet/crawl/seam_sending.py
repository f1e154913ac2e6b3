"""When a request really leaves: a connection may have to be made first, and a busy loop comes round slowly.

Scrapy tells of nothing between its middlewares and the answer. Its usual handler keeps connections in a pool
of Twisted's, which is asked for one in the course of sending a request. Like :mod:`~scrapy_fleet.crawl.seam`,
this file touches Scrapy's private names; where they are not found, less is known, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from inspect import iscoroutine
from typing import Any

from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHandshakeListener
from twisted.web.client import HTTPConnectionPool
from zope.interface import alsoProvides  # type: ignore[import-untyped]

SENDING = ("download_request_async", "download_request")
"""How the handlers are asked to send a request: the first of these that there is."""

Tell = Callable[[Request, bool], None]
"""Of a request that is being sent, and whether it has its connection: then it is written in this turn of the
loop. Without one, no more is known of it until it is answered."""
Hold = Callable[[Request], "Deferred[None] | None"]
"""What a request that is about to be sent has to wait for."""

_sent: ContextVar[Request | None] = ContextVar("sent", default=None)


def tell_of_sending(handlers: Any, hold: Hold, tell: Tell) -> None:
    """Have every request held that is about to be sent, and told of when it is: it may have waited since it
    left the middlewares."""
    name = next(name for name in SENDING if hasattr(handlers, name))
    send = getattr(handlers, name)

    def sent(request: Request, *others: Any) -> Any:
        if not _watches_connections(handlers, request, tell):
            tell(request, False)
        mark = _sent.set(request)
        try:
            sending = send(request, *others)
        finally:
            _sent.reset(mark)
        return _sending(request, sending) if iscoroutine(sending) else sending

    def held(request: Request, *others: Any) -> Any:
        wait = hold(request)
        if wait is None:
            return sent(request, *others)
        if name == "download_request_async":
            return _after(wait, sent, request, *others)
        return wait.addCallback(lambda _: sent(request, *others))

    setattr(handlers, name, held)


async def _after(wait: Deferred[None], send: Callable[..., Any], *args: Any) -> Any:
    await maybe_deferred_to_future(wait)
    return await send(*args)


async def _sending(request: Request, sending: Coroutine[Any, Any, Any]) -> Any:
    mark = _sent.set(request)
    try:
        return await sending
    finally:
        _sent.reset(mark)


def _watches_connections(handlers: Any, request: Request, tell: Tell) -> bool:
    """Whether it will be told when this request has its connection."""
    find = getattr(handlers, "_get_handler", None)
    pool = getattr(find(urlparse_cached(request).scheme), "_pool", None) if find is not None else None
    if not isinstance(pool, HTTPConnectionPool):
        return False
    if "getConnection" not in vars(pool):
        pool.getConnection = _watched(pool.getConnection, tell)  # type: ignore[method-assign]
    return True


def _watched(get: Callable[..., Deferred[Any]], tell: Tell) -> Callable[..., Deferred[Any]]:
    def get_connection(*args: Any, **kwargs: Any) -> Deferred[Any]:
        found = get(*args, **kwargs)
        request = _sent.get()
        if request is None:
            return found
        is_new = not found.called

        def connected(connection: Any) -> Any:
            if is_new and urlparse_cached(request).scheme == "https":
                # What is written waits until the two have agreed on keys.
                connection.handshakeCompleted = lambda: tell(request, True)
                alsoProvides(connection, IHandshakeListener)
            else:
                tell(request, True)
            return connection

        return found.addCallback(connected)

    return get_connection
