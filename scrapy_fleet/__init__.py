"""Crash-safe, distributed crawling for Scrapy: one line in ``settings.py``.

``ADDONS = {"scrapy_fleet.Addon": 500}``
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy_fleet.addon import Addon as Addon
    from scrapy_fleet.crawl.items import FleetPipeline as FleetPipeline
    from scrapy_fleet.errors import FleetError as FleetError
    from scrapy_fleet.errors import SerializationError as SerializationError
    from scrapy_fleet.errors import TransientError as TransientError

__version__ = "0.1.0"

# Imported when first used: the stores and the site of the demo do without Scrapy.
_PUBLIC = {
    "Addon": "scrapy_fleet.addon",
    "FleetError": "scrapy_fleet.errors",
    "FleetPipeline": "scrapy_fleet.crawl.items",
    "SerializationError": "scrapy_fleet.errors",
    "TransientError": "scrapy_fleet.errors",
}

__all__ = ["Addon", "FleetError", "FleetPipeline", "SerializationError", "TransientError", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
