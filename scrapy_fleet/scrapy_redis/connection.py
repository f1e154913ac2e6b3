"""Connections to Redis as scrapy-redis' settings describe them, and what they mean for ``FLEET_URL``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from redis.cluster import RedisCluster
from redis.sentinel import SentinelConnectionPool
from scrapy.utils.misc import load_object

from scrapy_fleet.errors import SettingError
from scrapy_fleet.scrapy_redis import defaults

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

SETTINGS_PARAMS_MAP = {
    "REDIS_URL": "url",
    "REDIS_HOST": "host",
    "REDIS_PORT": "port",
    "REDIS_DB": "db",
    "REDIS_ENCODING": "encoding",
    "REDIS_DECODE_RESPONSES": "decode_responses",
}
"""Setting -> parameter of the client."""


def parameters(settings: BaseSettings) -> dict[str, Any]:
    """What the settings say of a client."""
    params = {**defaults.REDIS_PARAMS, **settings.getdict("REDIS_PARAMS")}
    for setting, name in SETTINGS_PARAMS_MAP.items():
        if value := settings.get(setting):
            params[name] = value
    # They may come from the command line or the environment, as text.
    for name in ("port", "db"):
        if isinstance(params.get(name), str):
            params[name] = settings.getint(f"REDIS_{name.upper()}")
    if isinstance(params.get("decode_responses"), str):
        params["decode_responses"] = settings.getbool("REDIS_DECODE_RESPONSES")
    if isinstance(params.get("redis_cls"), str):
        params["redis_cls"] = load_object(params["redis_cls"])
    return params


def get_redis_from_settings(settings: BaseSettings) -> Any:
    """A client: ``REDIS_URL``, or ``REDIS_HOST``, ``REDIS_PORT`` and ``REDIS_DB``; ``REDIS_ENCODING``,
    ``REDIS_DECODE_RESPONSES``, and in ``REDIS_PARAMS`` whatever else the client takes, and ``redis_cls``."""
    return get_redis(**parameters(settings))


from_settings = get_redis_from_settings


def get_redis(**kwargs: Any) -> Any:
    """A client of the class ``redis_cls``, for a ``url`` or with the other parameters."""
    redis_cls = kwargs.pop("redis_cls", defaults.REDIS_CLS)
    url = kwargs.pop("url", None)
    return redis_cls.from_url(url, **kwargs) if url else redis_cls(**kwargs)


# The same server for the fleet's store

_TLS = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs")


def fleet_url(settings: BaseSettings) -> str:
    """The ``FLEET_URL`` that means the same server."""
    params = parameters(settings)
    redis_cls = params.get("redis_cls", defaults.REDIS_CLS)
    if isinstance(redis_cls, type) and issubclass(redis_cls, RedisCluster):
        return _cluster_url(params)
    try:
        pool = get_redis(**params).connection_pool
        known: dict[str, Any] = pool.connection_kwargs
    except AttributeError:
        raise SettingError(
            f"REDIS_PARAMS has redis_cls = {redis_cls!r}, which does not say where its server is. "
            "Set FLEET_URL as well."
        ) from None
    if isinstance(pool, SentinelConnectionPool):
        return _sentinel_url(pool, known)
    options = _options(known)
    if "path" in known:
        options |= {"db": known["db"]} if known.get("db") else {}
        return f"unix://{_user(known)}{quote(known['path'])}{_query(options)}"
    tls = "s" if _is_tls(pool, known) else ""
    place = f"{_host(known.get('host', 'localhost'))}:{known.get('port', 6379)}"
    return f"redis{tls}://{_user(known)}{place}/{known.get('db') or 0}{_query(options)}"


def _cluster_url(params: dict[str, Any]) -> str:
    if url := params.get("url"):
        scheme, _, rest = str(url).partition("://")
        return f"{scheme}+cluster://{rest.rstrip('/')}"
    nodes = [(node.host, node.port) for node in params.get("startup_nodes") or ()]
    nodes = nodes or [(params.get("host", "localhost"), params.get("port", 6379))]
    places = ",".join(f"{_host(host)}:{port}" for host, port in nodes)
    tls = "s" if params.get("ssl") else ""
    return f"redis{tls}+cluster://{_user(params)}{places}{_query(_options(params))}"


def _sentinel_url(pool: Any, known: dict[str, Any]) -> str:
    watchers = [client.connection_pool.connection_kwargs for client in pool.sentinel_manager.sentinels]
    places = ",".join(f"{_host(watcher['host'])}:{watcher['port']}" for watcher in watchers)
    options = _options(known)
    for name in ("username", "password"):
        if watchers[0].get(name):
            options[f"sentinel_{name}"] = watchers[0][name]
    return (
        f"redis+sentinel://{_user(known)}{places}/{pool.service_name}/{known.get('db') or 0}{_query(options)}"
    )


def _is_tls(pool: Any, known: dict[str, Any]) -> bool:
    return bool(known.get("ssl")) or "SSL" in getattr(pool.connection_class, "__name__", "")


def _options(known: dict[str, Any]) -> dict[str, Any]:
    return {name: known[name] for name in _TLS if known.get(name)}


def _query(options: dict[str, Any]) -> str:
    return f"?{urlencode(options)}" if options else ""


def _user(known: dict[str, Any]) -> str:
    user, password = known.get("username") or "", known.get("password") or ""
    if not (user or password):
        return ""
    return f"{quote(user, safe='')}:{quote(password, safe='')}@"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
