"""How polite a crawl is, as Scrapy's own settings say: delays, concurrency, AutoThrottle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scrapy_fleet.ahead import SLACK
from scrapy_fleet.errors import SettingError
from scrapy_fleet.model import Auto, Rule
from scrapy_fleet.values import above_zero, checked, number, seconds

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.settings import BaseSettings

UNDER = 0.9
"""The downloader's own delay, for what does not come from the store, as a part of the host's: a leased
request must never wait there."""
SLOT_KEYS = ("delay", "concurrency", "jitter", "randomize_delay")

_some = number(int, 1)


def rule(settings: BaseSettings, spider: type[Spider]) -> Rule:
    """How a slot is treated that has no rule of its own."""
    delay, concurrency = "DOWNLOAD_DELAY", "CONCURRENT_REQUESTS_PER_DOMAIN"
    if checked("CONCURRENT_REQUESTS_PER_IP", settings.get("CONCURRENT_REQUESTS_PER_IP") or 0, number(int, 0)):
        concurrency = "CONCURRENT_REQUESTS_PER_IP"
    at_a_time = getattr(spider, "max_concurrent_requests", settings.get(concurrency))
    return Rule(
        delay=checked(delay, getattr(spider, "download_delay", settings.get(delay)), seconds),
        concurrency=checked(concurrency, at_a_time, _some),
        jitter=drawn(_jitter(settings)),
    )


def slot_rules(settings: BaseSettings, default: Rule) -> dict[str, Rule]:
    """What DOWNLOAD_SLOTS says of single slots."""
    slots = settings.getdict("DOWNLOAD_SLOTS")
    return {name: _slot_rule(f"DOWNLOAD_SLOTS[{name!r}]", own, default) for name, own in slots.items()}


def _slot_rule(where: str, own: Any, default: Rule) -> Rule:
    for key in checked(where, own, _dict):
        if key not in SLOT_KEYS:
            raise SettingError(f"{where} has no key {key!r}. There are: {', '.join(SLOT_KEYS)}.")
    jitter = default.jitter
    if "jitter" in own:
        jitter = drawn(checked(f"{where}['jitter']", own["jitter"], seconds))
    elif "randomize_delay" in own:
        jitter = drawn(0.5 * bool(own["randomize_delay"]))
    return Rule(
        delay=checked(f"{where}['delay']", own.get("delay", default.delay), seconds),
        concurrency=checked(f"{where}['concurrency']", own.get("concurrency", default.concurrency), _some),
        jitter=jitter,
    )


def drawn(jitter: float) -> float:
    """What distances are drawn with. A request may be sent a little late, and come closer to the next one: so
    they vary a little less than people say, and none is shorter than they allow."""
    return min(1.0, max(0.0, 1 - (1 - jitter) / (1 - SLACK)))


def auto(settings: BaseSettings) -> Auto | None:
    """AutoThrottle, if it is on."""
    if not _flag(settings, "AUTOTHROTTLE_ENABLED"):
        return None
    start, most = "AUTOTHROTTLE_START_DELAY", "AUTOTHROTTLE_MAX_DELAY"
    target = "AUTOTHROTTLE_TARGET_CONCURRENCY"
    return Auto(
        start=checked(start, settings.get(start), seconds),
        most=checked(most, settings.get(most), seconds),
        target=checked(target, settings.get(target), above_zero),
    )


def _jitter(settings: BaseSettings) -> float:
    """DOWNLOAD_DELAY_JITTER, or its older form where that is set with more weight."""
    old, new = "RANDOMIZE_DOWNLOAD_DELAY", "DOWNLOAD_DELAY_JITTER"
    if settings.get(new) is None or (settings.getpriority(old) or 0) > (settings.getpriority(new) or 0):
        return 0.5 if _flag(settings, old) else 0.0
    return float(checked(new, settings.get(new), seconds))


def _flag(settings: BaseSettings, name: str) -> bool:
    def parse(value: Any) -> bool:
        try:
            return settings.getbool(name)
        except ValueError:
            raise ValueError("it must be True or False") from None

    return bool(checked(name, settings.get(name), parse))


def _dict(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("it must be a dict")
    return value
