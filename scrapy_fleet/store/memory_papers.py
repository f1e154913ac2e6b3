"""Documents that the workers of a crawl in memory share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scrapy_fleet.model import Paper


@dataclass(slots=True, eq=False)
class Document:
    """A paper, or who makes it."""

    data: bytes | None = None
    written: float = 0.0
    maker: str | None = None
    since: float = 0.0  # when its making was given to the maker

    def ask(self, worker: str, max_age: float, patience: float, now: float) -> Paper:
        if self.data is not None and now - self.written <= max_age:
            return Paper(self.data, now - self.written)
        if self.maker is None or now - self.since >= patience:
            self.maker, self.since = worker, now
        return Paper(mine=self.maker == worker)


class PaperVerbs:
    """The part of the contract that is about papers."""

    _papers: dict[str, Document]
    _clock: Callable[[], float]

    def paper(self, name: str, worker: str, max_age: float, patience: float) -> Paper:
        document = self._papers.setdefault(name, Document())
        return document.ask(worker, max_age, patience, self._clock())

    def write_paper(self, name: str, data: bytes) -> None:
        self._papers[name] = Document(data, self._clock())
