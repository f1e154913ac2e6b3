"""Where the crawls are that a command is about: which place, and which crawl in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy_fleet.errors import FleetError, StoreError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from scrapy_fleet.store.base import Store


def in_project() -> bool:
    here = Path.cwd()
    found = any((folder / "scrapy.cfg").is_file() for folder in (here, *here.parents))
    return found or bool(os.environ.get("SCRAPY_SETTINGS_MODULE"))


def project_settings() -> BaseSettings | None:
    """The settings of the Scrapy project we are in; None outside, where Scrapy need not be loaded."""
    if not in_project():
        return None
    from scrapy.utils.project import get_project_settings

    try:
        return get_project_settings()
    except Exception as error:  # whatever a project's settings.py may raise
        raise FleetError(f"The settings of the project cannot be read: {error!r}.") from error


def is_drop_in(settings: BaseSettings) -> bool:
    """Whether a project names the scheduler as it did for scrapy-redis."""
    return "scrapy_fleet.scrapy_redis." in str(settings.get("SCHEDULER"))


def _url_of_drop_in(settings: BaseSettings) -> str | None:
    if not is_drop_in(settings):
        return None
    from scrapy_fleet.scrapy_redis.connection import fleet_url

    return fleet_url(settings)


class Place(NamedTuple):
    """What the command line and the settings say of where to look."""

    url: str | None = None
    jobdir: str | None = None
    crawl: str | None = None
    """The crawl meant if none is named."""
    settings: BaseSettings | None = None
    fixed: bool = False
    """The command line said where: no spider's own settings are asked."""

    @classmethod
    def of(cls, url: str | None, jobdir: str | None, settings: BaseSettings | None) -> Place:
        if url is not None or jobdir is not None:
            if url is not None and ":" not in url:  # a path, as people type it
                url = f"sqlite:{url}"
            return cls(url, jobdir, None, settings, fixed=True)
        if settings is None:
            return cls()
        url = settings.get("FLEET_URL") or _url_of_drop_in(settings)
        return cls(url, settings.get("JOBDIR"), settings.get("FLEET_CRAWL"), settings)

    @property
    def has_files(self) -> bool:
        return self.url is None or self.url.startswith("sqlite:")

    @property
    def on_server(self) -> bool:
        return not self.has_files and not (self.url or "").startswith("memory:")

    def _on_server(self) -> list[str]:
        assert self.url is not None
        self.connect("any").close()  # says what is wrong with a URL; nothing is sent
        from scrapy_fleet.store.redis.health import crawl_names

        return crawl_names(self.url, self.shown)

    def path(self, crawl: str) -> Path:
        from scrapy_fleet.settings import store_path

        return store_path(self.url, crawl, self.jobdir)

    @property
    def file(self) -> Path | None:
        """The file, if the place is one whatever the crawl is called."""
        path = self.path("a")
        return path if path == self.path("b") else None

    @property
    def folder(self) -> Path:
        return self.path("a").parent

    def files(self) -> list[Path]:
        """The databases here, ours or not."""
        if not self.has_files:
            return []
        file = self.file
        if file is not None:
            return [file] if file.exists() else []
        return sorted(path for path in self.folder.glob("*.db") if path.is_file())

    def crawls(self) -> dict[str, Place]:
        """The crawls here, each with its place; what is not a crawl is passed over."""
        if self.on_server:
            return {name: self._replace(crawl=name) for name in self._on_server()}
        from scrapy_fleet.store.sqlite import crawl_name

        found: dict[str, Place] = {}
        for path in self.files():
            try:
                name = crawl_name(path)
            except StoreError:
                if self.file is not None:
                    raise
                continue
            if name not in found or path == self.path(name):
                found[name] = Place(f"sqlite:{path.absolute()}", crawl=name, fixed=True)
        return found

    def resolve(self, crawl: str | None) -> tuple[Place, str]:
        """The crawl that is meant, and the place where it is."""
        self._need_lasting()
        wanted = crawl or self.crawl
        if wanted is not None and not self.has_files:
            return self, wanted
        if wanted is not None and self.file is None and self.path(wanted).exists():
            return self, wanted
        found = self.crawls()
        if wanted is None and len(found) == 1:
            [wanted] = found
        if wanted in found:
            return found[wanted], wanted
        if wanted is not None and (own := self._of_spider(wanted)) is not None:
            return own.resolve(None)
        raise FleetError(self._not_found(wanted, list(found)))

    def for_new(self, crawl: str) -> Place:
        """Where a crawl is to be that is not there yet."""
        self._need_lasting()
        return self._of_spider(crawl) or self

    def open(self, crawl: str) -> Store:
        """A crawl that is there."""
        return self.connect(crawl, create=False)

    def connect(self, crawl: str, *, create: bool = True) -> Store:
        from scrapy_fleet.settings import open_store

        return open_store(self.url, crawl, jobdir=self.jobdir, create=create)

    @property
    def shown(self) -> str:
        """Where this is, without secrets."""
        from scrapy_fleet.settings import shown

        if not self.has_files:
            return shown(self.url or "")
        return str(self.file or self.folder)

    def _need_lasting(self) -> None:
        if self.url is not None and self.url.partition(":")[0] == "memory":
            raise FleetError(
                "A crawl in memory: can only be seen by the process that runs it. "
                "Set FLEET_URL to a place that others can open, such as sqlite:///folder."
            )

    def _not_found(self, wanted: str | None, names: list[str]) -> str:
        there = ", ".join(names)
        if wanted is None and names:
            where = "at" if self.on_server else "in"
            return f"There are several crawls {where} {self.shown}; name one of them: {there}."
        what = f"no crawl {wanted!r}" if wanted else "no crawl"
        where = "at" if self.on_server or self.file else "in"
        if names:
            return f"There is {what} {where} {self.shown}; there is: {there}."
        return f"There is {what} {where} {self.shown}. Say where it is with --url or --jobdir."

    def home_of_spider(self, name: str) -> Place | None:
        """Where the crawl of the project's spider of this name is, or will be, if there is such a spider."""
        if self.settings is None:
            return None
        from scrapy.utils.misc import load_object

        settings = self.settings.frozencopy()
        try:
            names = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings).list()
        except Exception:  # a project that cannot be loaded
            return None
        return (self._of_spider(name) or self) if name in names else None

    def _of_spider(self, name: str) -> Place | None:
        """The place that the spider of this name sets for itself, if it is another one."""
        if self.settings is None or self.fixed:
            return None
        from scrapy.utils.misc import load_object

        settings = self.settings.copy()
        try:
            loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
            loader.load(name).update_settings(settings)
        except Exception:  # no such spider, or a project that cannot be loaded: there is no such place
            return None
        own = Place.of(None, None, settings)
        own = own._replace(crawl=own.crawl or (None if own.file else name), settings=None)
        return None if (own.url, own.jobdir, own.crawl) == (self.url, self.jobdir, name) else own
