"""The spider that a command is about, with its settings: it is not started, and none is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.errors import FleetError, SettingError
from scrapy_fleet.ops.place import Place

if TYPE_CHECKING:
    from scrapy_fleet.settings import Options


class Home:
    """What is needed of a spider to read and write its requests."""

    def __init__(self, spider: type[Spider], settings: BaseSettings | None) -> None:
        try:
            self.crawler = Crawler(spider, Settings(settings) if settings is not None else Settings())
            self.crawler.addons.load_settings(self.crawler.settings)
            name = self.crawler.settings["REQUEST_FINGERPRINTER_CLASS"]
            self.fingerprint = build_from_crawler(load_object(name), self.crawler).fingerprint
        except FleetError:
            raise
        except Exception as error:  # whatever a project's classes may raise
            raise FleetError(f"The settings of the project cannot be used: {error!r}.") from error
        # Its methods are what is needed: it may not be possible to make one without arguments.
        self.spider: Spider = spider.__new__(spider)
        self.codec = Codec(self.spider)
        self.options = self._options()

    def _options(self) -> Options:
        try:
            return fleet_settings.of(self.crawler)
        except SettingError:
            # The project does not have the add-on yet; or its settings are wrong, which is told now.
            return fleet_settings.read(self.crawler.settings, type(self.spider))


def find_spider(place: Place, spider: str | None, crawl: str | None) -> type[Spider]:
    """The spider of this name, or in this file; else the one that is called as the crawl, or the only one."""
    if spider is not None and spider.endswith(".py"):
        return _in_file(Path(spider))
    settings = place.settings
    if settings is None or not settings.getlist("SPIDER_MODULES"):
        raise FleetError(
            "The spider is needed, for its callbacks: run this in its project, or name its file: --spider."
        )
    try:
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
        names = loader.list()
        wanted = spider or (crawl if crawl in names else None) or (names[0] if len(names) == 1 else None)
        if wanted in names:
            found: type[Spider] = loader.load(wanted)
            return found
    except Exception as error:  # whatever a project's modules may raise
        raise FleetError(f"The spiders of the project cannot be loaded: {error!r}.") from error
    there = ", ".join(sorted(names)) or "none"
    what = f"There is no spider {spider!r}." if spider else "Which spider is it? Name it with --spider."
    raise FleetError(f"{what} There are: {there}.")


def _in_file(path: Path) -> type[Spider]:
    from scrapy.utils.spider import iter_spider_classes

    if not path.is_file():
        raise FleetError(f"There is no file {path}.")
    try:
        found = [*iter_spider_classes(_module(path))]
    except Exception as error:  # whatever is in it
        raise FleetError(f"{path} cannot be loaded: {error!r}.") from error
    if not found:
        raise FleetError(f"There is no spider in {path}.")
    return found[-1]


def _module(path: Path) -> Any:
    """As ``scrapy runspider`` loads it: under the name of the file."""
    import sys
    from importlib import import_module

    sys.path.insert(0, str(path.absolute().parent))
    try:
        return import_module(path.stem)
    finally:
        sys.path.pop(0)


def place_of(place: Place, home: Home, crawl: str | None) -> tuple[Place, str]:
    """Where the crawl of this spider is or will be, and its name."""
    options = home.options
    name = crawl or place.crawl or options.crawl
    if not place.fixed:
        place = place._replace(url=options.url, jobdir=options.jobdir)
    if (place.url or "").partition(":")[0] == "memory":
        raise FleetError("A crawl in memory: is gone with its process. Set FLEET_URL to another place.")
    return place, name
