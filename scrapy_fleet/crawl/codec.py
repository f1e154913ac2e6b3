"""Scrapy's requests as bytes, and back: small, fast, and nothing in them can run code.

A payload is a version byte and a msgpack list: URL, callback, meta, and a map of the other fields
that differ from Scrapy's defaults; what is not needed at its end is left out. What most requests have
in common is written short: the scheme of the URL, the callback ``parse``, a meta that is only the depth.

Whoever can write to the store can write payloads. So names in a payload only choose among what is
there anyway: callbacks of the spider, and subclasses of Request in modules that are already imported.

What a subclass of Request adds is kept if its ``attributes`` name it, as in Scrapy's disk queues.
"""

from __future__ import annotations

import reprlib
import sys
from itertools import chain
from types import FunctionType, MethodType, ModuleType
from typing import Any

from scrapy import Request, Spider
from scrapy.http import FormRequest, JsonRequest, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK

from scrapy_fleet.crawl.plain import ATOMS, SURE_ATOMS, VERSION, a_kind, encode, lower, pack, read, unpack
from scrapy_fleet.crawl.seam import plain_request, request_values, restore_url_and_body
from scrapy_fleet.errors import Unreadable, Unstorable

__all__ = ["Codec", "pack", "unpack"]

# Callbacks that Scrapy's own spiders put into their requests, or mean for users to put there.
_SCRAPY_CALLBACKS = {"parse", "_parse", "parse_start_url", "_callback", "_errback", "_parse_sitemap"}
# Methods by which Scrapy runs a spider, also where the user has overridden them.
_NEVER_CALLBACKS = {*dir(Spider), "closed", "start_requests"} - _SCRAPY_CALLBACKS


def _callbacks(spider: Spider) -> dict[str, FunctionType]:
    """The methods that a stored request of this spider may name."""
    found: dict[str, FunctionType] = {}
    for cls in reversed(type(spider).__mro__):
        scrapys = cls in Spider.__mro__ or cls.__module__.partition(".")[0] == "scrapy"
        for name, member in vars(cls).items():
            found.pop(name, None)
            dunder = name.startswith("__") and name.endswith("__")
            allowed = name in _SCRAPY_CALLBACKS if scrapys else name not in _NEVER_CALLBACKS
            if type(member) is FunctionType and allowed and not dunder:
                found[name] = member
    return found


def _describe_callable(value: Any, spider: Spider) -> str:
    if isinstance(value, MethodType):
        other = "" if value.__self__ is spider else f" of another object, {a_kind(type(value.__self__))}"
        return f"is the method {getattr(value, '__qualname__', value.__func__)}{other}"
    if isinstance(value, FunctionType):
        return "is a lambda" if value.__name__ == "<lambda>" else f"is the function {value.__qualname__}"
    return f"is {a_kind(type(value))}"


# Short key -> attribute, and the type it must have.
_FIELDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "p": ("priority", int),
    "d": ("dont_filter", object),
    "h": ("headers", dict),
    "k": ("cb_kwargs", dict),
    "e": ("errback", str),
    "m": ("method", str),
    "b": ("body", bytes),
    "c": ("cookies", (dict, list)),
    "f": ("flags", list),
    "n": ("encoding", str),
    "t": ("class", str),
    "x": ("attributes", dict),
}
_KNOWN_CLASSES: dict[str, type[Request]] = {
    cls.__name__: cls for cls in (Request, FormRequest, JsonRequest, XmlRpcRequest)
}
_SHORT_NAMES = {cls: name for name, cls in _KNOWN_CLASSES.items()}
_BYTES, _LIST = frozenset({bytes}), frozenset({list})
# One character in place of a URL's scheme, or before a URL that begins with such a character.
_HTTPS, _HTTP, _AS_IT_IS = "/", ":", "="
_SCHEMES = {_HTTPS: "https://", _HTTP: "http://", _AS_IT_IS: ""}
_PARSE = 0
_BASE_ATTRIBUTES = {"url", "callback", "meta", *(name for name, _ in _FIELDS.values())} - {
    "class",
    "attributes",
}
# A later Scrapy may give its requests more attributes: then they are treated like a subclass.
_PLAIN: type[Request] | None = Request if _BASE_ATTRIBUTES.issuperset(Request.attributes) else None
# Scrapy 2.13: requests without __slots__ take any attribute.
_HAS_DICT = Request.__dictoffset__ != 0


def find_class(name: str) -> type[Request]:
    """The Request subclass of this name, if it is loaded; nothing is imported, no code is run."""
    if name in _KNOWN_CLASSES:
        return _KNOWN_CLASSES[name]
    module, _, path = name.partition(":")
    found: object = sys.modules.get(module)
    for step in path.split("."):
        # Only a plain module: merely looking into a lazy one would load it.
        inside = type(found) is ModuleType or isinstance(found, type)
        found = vars(found).get(step) if inside else None
    if isinstance(found, type) and issubclass(found, Request):
        return found
    raise Unreadable(
        f"its class {name!r} is not a Request subclass in a loaded module; if it was moved, "
        "keep its old name, and import it where the spider is defined"
    )


def _field(key: str, value: object, atoms: frozenset[type]) -> object:
    name, kind = _FIELDS[key]
    if not isinstance(value, kind):
        raise Unstorable(f"{name} is {a_kind(type(value))}, which cannot be stored")
    return lower(value, atoms, name)


def _added_attributes(request: Request, atoms: frozenset[type]) -> dict[str, object]:
    added: dict[str, object] = {}
    for name in type(request).attributes:
        if name not in _BASE_ATTRIBUTES:
            try:
                value = getattr(request, name)
            except Exception as error:
                raise Unstorable(f"{name} cannot be read, and so cannot be stored: {error!r}") from error
            added[name] = lower(value, atoms, name)
    return added


def _refuse_loose_attributes(request: Request) -> None:
    """What was set on the object beside its ``attributes`` would be lost without a word."""
    cls = type(request)
    for name in getattr(request, "__dict__", ()):
        if name not in cls.attributes and not name.startswith("_"):
            raise Unstorable(
                f"{name} cannot be stored: {cls.__qualname__}.attributes does not list it; "
                "list it there and accept it as an argument, or use meta"
            )


def _short(url: Any) -> Any:
    if type(url) is not str:
        return url
    if url.startswith("https://"):
        return _HTTPS + url[8:]
    if url.startswith("http://"):
        return _HTTP + url[7:]
    return _AS_IT_IS + url if url.startswith(tuple(_SCHEMES)) else url


def _whole(url: Any) -> Any:
    if type(url) is str and url[:1] in _SCHEMES:
        return _SCHEMES[url[0]] + url[1:]
    return url


def _callback_name(stored: Any) -> Any:
    return "parse" if type(stored) is int and stored == _PARSE else stored


def _odd_headers(headers: dict[Any, Any]) -> list[object]:
    """Names of headers that are not, as Headers keeps them, bytes with a list of bytes."""
    lists = headers.values()
    if _BYTES.issuperset(map(type, headers)) and _LIST.issuperset(map(type, lists)):
        if _BYTES.issuperset(map(type, chain.from_iterable(lists))):
            return []
        return [name for name, values in headers.items() if not _BYTES.issuperset(map(type, values))]
    return [name for name, values in headers.items() if type(name) is not bytes or type(values) is not list]


def _rebuild(cls: type[Request], fields: dict[str, Any], added: dict[str, Any]) -> Request:
    """Call the class as Scrapy does, then undo what its constructor changed once more."""
    if unknown := added.keys() - {*cls.attributes}:
        raise Unreadable(
            f"{cls.__qualname__} no longer has the attribute {min(unknown)!r} of the stored request"
        )
    values = {
        "errback": None,
        "method": "GET",
        "headers": {},
        "body": b"",
        "cookies": {},
        "encoding": "utf-8",
        "priority": 0,
        "dont_filter": False,
        "flags": [],
        "cb_kwargs": {},
        **fields,
    }
    request = cls(**{name: value for name, value in values.items() if name in cls.attributes}, **added)
    for name in ("callback", "errback", "method", "priority", "dont_filter", "cookies", "flags"):
        if getattr(request, name) != values[name]:
            setattr(request, name, values[name])
    for name in ("headers", "meta", "cb_kwargs"):
        current: dict[Any, Any] = getattr(request, name)
        if dict(current) != values[name]:
            # Past the methods of Headers, which would spell some names anew.
            dict.clear(current)
            dict.update(current, values[name])
    restore_url_and_body(request, values["url"], values["body"])
    return request


class Codec:
    """Turns the requests of one spider into payloads, and back."""

    def __init__(self, spider: Spider) -> None:
        self._spider = spider
        self.methods = _callbacks(spider)
        self._names = {function: name for name, function in self.methods.items()}
        self._rebuildable: set[type[Request] | None] = {_PLAIN}

    def encode(self, request: Request) -> bytes:
        try:
            payload = VERSION + encode(self._row(request, ATOMS))
        except (OverflowError, UnicodeEncodeError):  # rare, see ATOMS
            payload = VERSION + encode(self._row(request, SURE_ATOMS))
        if type(request) not in self._rebuildable:
            self._try_to_rebuild(request, payload)
        return payload

    def decode(self, payload: bytes) -> Request:
        try:
            return self._request(read(payload))
        except Unreadable:
            raise
        except Exception as error:
            raise Unreadable(f"the stored request is damaged: {error}") from error

    def _row(self, request: Request, atoms: frozenset[type]) -> list[object]:
        (
            url, callback, meta, priority, dont_filter, headers, cb_kwargs,
            errback, method, body, cookies, flags, encoding,
        ) = request_values(request)  # fmt: skip
        url = lower(_short(url), atoms, "url")
        if callback is not None:
            callback = self._name_of(callback, "callback")
            if callback == "parse":
                callback = _PARSE
        if not meta:
            meta = None
        elif len(meta) == 1 and type(depth := meta.get("depth")) is int and int in atoms:
            meta = depth if type(next(iter(meta))) is str else lower(meta, atoms, "meta")
        else:
            meta = lower(meta, atoms, "meta")
        rest: dict[str, object] = {}
        if priority:
            # It only orders: an IntEnum is stored as its number.
            rest["p"] = _field("p", int(priority) if isinstance(priority, int) else priority, atoms)
        if dont_filter is not False:
            rest["d"] = _field("d", dont_filter, atoms)
        if headers:
            rest["h"] = headers = dict(headers)
            if odd := _odd_headers(headers):
                raise Unstorable(f"headers[{odd[0]!r}] is not a list of bytes, and cannot be stored")
        if cb_kwargs:
            rest["k"] = _field("k", cb_kwargs, atoms)
        if errback is not None:
            rest["e"] = self._name_of(errback, "errback")
        if method != "GET":
            rest["m"] = _field("m", method, atoms)
        if body:
            rest["b"] = _field("b", body, atoms)
        if cookies:
            rest["c"] = _field("c", cookies, atoms)
        if flags:
            rest["f"] = _field("f", flags, atoms)
        if encoding != "utf-8":
            rest["n"] = _field("n", encoding, atoms)
        if type(request) is not _PLAIN:
            cls = type(request)
            rest["t"] = _SHORT_NAMES.get(cls) or f"{cls.__module__}:{cls.__qualname__}"
            if added := _added_attributes(request, atoms):
                rest["x"] = added
        if _HAS_DICT or type(request) is not _PLAIN:
            _refuse_loose_attributes(request)
        if rest:
            return [url, callback, meta, rest]
        return [url, callback] if meta is None else [url, callback, meta]

    def _name_of(self, value: Any, where: str) -> str:
        if type(value) is MethodType and value.__self__ is self._spider:
            function = value.__func__
            name = self._names.get(function) if type(function) is FunctionType else None
            if name is not None:
                return name
        elif value is NO_CALLBACK:
            return ""
        raise Unstorable(
            f"{where} {_describe_callable(value, self._spider)}, which cannot be stored: "
            f"use a method that {type(self._spider).__name__} defines"
        )

    def _try_to_rebuild(self, request: Request, payload: bytes) -> None:
        """Find out with the first request of a class, not after a crash, that it cannot come back."""
        cls = type(request)
        try:
            twin = self.decode(payload)
        except Unreadable as error:
            raise Unstorable(
                f"a {cls.__qualname__} cannot be stored, it would not come back: {error}"
            ) from None
        for name in ("__class__", *cls.attributes):
            if name not in _BASE_ATTRIBUTES and getattr(twin, name) != getattr(request, name):
                raise Unstorable(
                    f"{name} of a {cls.__qualname__} cannot be stored, it would come back changed"
                )
        self._rebuildable.add(cls)

    def _request(self, row: Any) -> Request:
        if type(row) is not list or not 2 <= len(row) <= 4:
            raise Unreadable(
                "the stored request is damaged: it is not a list of URL, callback, meta and fields"
            )
        url = _whole(row[0])
        if type(url) is not str or ("://" not in url and not url.startswith(("about:", "data:"))):
            raise Unreadable(f"the stored request is damaged: its URL is {reprlib.repr(url)}")
        callback = None if row[1] is None else self._method(_callback_name(row[1]), "callback")
        meta = row[2] if len(row) > 2 else None
        if type(meta) is int:
            meta = {"depth": meta}
        if meta is not None and type(meta) is not dict:
            raise Unreadable("the stored request is damaged: its meta is no dict")
        if len(row) < 4:
            return plain_request(url, callback, meta=meta)
        fields: dict[str, Any] = {}
        for key, value in row[3].items():
            if key not in _FIELDS:
                raise Unreadable(f"the stored request has the unknown field {key!r}")
            name, kind = _FIELDS[key]
            if not isinstance(value, kind):
                raise Unreadable(f"the stored request is damaged: its {name} is {a_kind(type(value))}")
            fields[name] = value
        if "errback" in fields:
            fields["errback"] = self._method(fields["errback"], "errback")
        if "headers" in fields and (odd := _odd_headers(fields["headers"])):
            raise Unreadable(f"the stored request is damaged: its header {odd[0]!r} is not a list of bytes")
        added = fields.pop("attributes", {})
        if "class" not in fields:
            return plain_request(url, callback, meta=meta, **fields)
        cls = find_class(fields.pop("class"))
        return _rebuild(cls, {"url": url, "callback": callback, "meta": meta or {}, **fields}, added)

    def _method(self, name: Any, where: str) -> Any:
        if name == "":
            return NO_CALLBACK
        if type(name) is not str or name not in self.methods:
            raise Unreadable(
                f"{where} {name!r} is not a callback of {type(self._spider).__name__}; "
                "if the method was renamed, keep one with the old name"
            )
        return MethodType(self.methods[name], self._spider)


def describe(payload: bytes) -> dict[str, str | None]:
    """Method, URL and the names of callback and errback in a payload, to be shown; needs no spider."""
    try:
        url, callback, _, rest = [*read(payload), None, None][:4]
        url = _whole(url)
        fields = rest or {}
        method, errback = fields.get("m", "GET"), fields.get("e")
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"the stored request is damaged: {error}") from error
    if type(url) is not str or type(method) is not str:
        raise Unreadable(f"the stored request is damaged: its URL is {reprlib.repr(url)}")
    return {"method": method, "url": url, "callback": _callback_name(callback), "errback": errback}
