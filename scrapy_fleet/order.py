"""Which request is next, as Scrapy's queue settings say it.

The store orders; of Scrapy's queues only their order is taken over. What cannot be taken over is refused or
told, never dropped without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_fleet.errors import SettingError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

STOCK = "scrapy.squeues"
NEEDED = ("push", "pop", "close", "__len__")


class Order(NamedTuple):
    lifo: bool
    """The newest first, among requests of equal priority."""
    seeds_apart: bool
    """Start requests come after the others of their priority, the oldest first."""
    remarks: tuple[str, ...] = ()
    """What is not as a setting may lead one to expect."""


def read(settings: BaseSettings, own: str | None) -> Order:
    """``own``: what FLEET_ORDER says."""
    if (queue := external(settings)) is not None:
        name = f"{queue.__module__}.{queue.__qualname__}"
        return Order(True, True, (f"SCHEDULER_DISK_QUEUE: requests are kept in {name}, not in a store.",))
    _refuse_priority_queue(settings)
    # As in Scrapy: with a job directory requests are in the disk queues, without it in the memory queues.
    used, unused = ("DISK", "MEMORY") if settings.get("JOBDIR") else ("MEMORY", "DISK")
    condition = "with" if used == "DISK" else "without"
    remarks: list[str] = []
    main, other = f"SCHEDULER_{used}_QUEUE", f"SCHEDULER_{unused}_QUEUE"
    lifo = own == "lifo" if own is not None else _is_lifo(settings, main)
    if own is not None:
        remarks += [
            f"{name} = {settings[name]!r} is not used: FLEET_ORDER = {own!r} goes before it."
            for name in (main, other)
            if _is_set(settings, name) and _told_order(settings, name) is not lifo
        ]
    elif _is_set(settings, other) and _told_order(settings, other) is not lifo:
        remarks.append(
            f"{other} = {settings[other]!r} is not used, as in Scrapy {condition} JOBDIR: the order is that "
            f"of {main}, the {'newest' if lifo else 'oldest'} first. FLEET_ORDER sets it in any case."
        )
    start, other = f"SCHEDULER_START_{used}_QUEUE", f"SCHEDULER_START_{unused}_QUEUE"
    seeds_apart = bool(settings.get(start))
    if _is_set(settings, other) and bool(settings.get(other)) is not seeds_apart:
        remarks.append(
            f"{other} = {settings[other]!r} is not used, as in Scrapy {condition} JOBDIR: see {start}."
        )
    if seeds_apart and _is_lifo(settings, start):
        raise SettingError(
            f"{start} = {settings[start]!r} cannot be used: start requests that are kept apart go out in "
            f"their order. Set {start} = None to have them among the others, or give them priorities."
        )
    if _is_set(settings, "SCHEDULER_PRIORITY_QUEUE") and _name(settings, "SCHEDULER_PRIORITY_QUEUE") == (
        "ScrapyPriorityQueue"
    ):
        remarks.append(
            "SCHEDULER_PRIORITY_QUEUE = 'scrapy.pqueues.ScrapyPriorityQueue': the highest priority goes "
            "first, as it says, but hosts whose next requests have the same priority take turns."
        )
    return Order(lifo, seeds_apart, tuple(remarks))


def external(settings: BaseSettings) -> type | None:
    """A queue class of the user's own in SCHEDULER_DISK_QUEUE; None if it is one of Scrapy's."""
    setting = "SCHEDULER_DISK_QUEUE"
    queue: type = _load(settings, setting)
    if queue.__module__ == STOCK:
        return None
    missing = [name for name in NEEDED if not callable(getattr(queue, name, None))]
    if missing:
        raise SettingError(
            f"{setting} = {settings[setting]!r} is no queue: it has no {', '.join(missing)}. "
            "A queue has from_crawler(crawler, key), push, pop, close and __len__."
        )
    return queue


def _refuse_priority_queue(settings: BaseSettings) -> None:
    setting = "SCHEDULER_PRIORITY_QUEUE"
    queue = _load(settings, setting)
    if queue.__module__ != "scrapy.pqueues":
        raise SettingError(
            f"{setting} = {settings[setting]!r} cannot be used: the crawl's store says which request is "
            "next. Leave it unset and give requests a priority; or name a queue of your own in "
            "SCHEDULER_DISK_QUEUE, which then works under it as in Scrapy."
        )


def _is_lifo(settings: BaseSettings, setting: str) -> bool:
    lifo = _told_order(settings, setting)
    if lifo is None:
        remedy = "Leave it unset" if "START" in setting else "Say with FLEET_ORDER which: 'lifo' or 'fifo'"
        raise SettingError(
            f"{setting} = {settings[setting]!r} cannot be used: requests wait in the crawl's store, the "
            f"newest or the oldest first, and only of Scrapy's own queues is it known which. {remedy}."
        )
    return lifo


def _told_order(settings: BaseSettings, setting: str) -> bool | None:
    """Whether a queue gives the newest first; None if it is not one of Scrapy's, so that nobody knows."""
    queue = _load(settings, setting)
    if queue.__module__ != STOCK:
        return None
    # Scrapy's queue classes all bear the same name; what they are made of tells.
    names = [cls.__name__.lower() for cls in queue.__mro__]
    return next(("lifo" in name for name in names if "lifo" in name or "fifo" in name), None)


def _is_set(settings: BaseSettings, setting: str) -> bool:
    return bool(settings.getpriority(setting))


def _name(settings: BaseSettings, setting: str) -> str:
    return str(_load(settings, setting).__name__)


def _load(settings: BaseSettings, setting: str) -> Any:
    from scrapy.utils.misc import load_object

    try:
        return load_object(settings[setting])
    except (ImportError, AttributeError, NameError, ValueError, TypeError) as error:
        raise SettingError(f"{setting} = {settings[setting]!r} cannot be imported: {error}") from error
