"""What is on the site: pages, links and troubles, all derived from a seed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from random import Random
from typing import Literal, get_args

Kind = Literal["tree", "random", "links", "flat", "chain", "listing"]

RAMP = 20
"""How many pages of a ``links`` site lead to nothing but new pages, so that a crawl gets wide."""


@dataclass(frozen=True)
class Shape:
    """A whole site in a few numbers. Shares are of pages, 0 to 1; page 0 has no troubles.

    - ``tree``: a random tree, at most ``links`` children a page; each page is linked from one page
      alone, so a lost link shows.
    - ``flat``: the regular tree with ``links`` children a page, wide and without duplicates.
    - ``random``: a random tree and other links across it, ``links`` in all.
    - ``links``: ``links`` links a page, one of them new and the rest known (20: 95 % known).
    - ``chain``: ``links`` chains side by side, which page 0 leads to; all other pages lead to one more.
    - ``listing``: pages that list ``links`` pages without links each, and then lead to the next such page.
    """

    kind: Kind = "tree"
    pages: int = 1000
    links: int = 10
    seed: int = 0
    redirects: float = 0.0
    """Pages that are linked as ``/r/N``, which redirects to them."""
    missing: float = 0.0
    """Pages that have one more link, to ``/gone/N``, a 404."""
    failing: float = 0.0
    """Pages that answer 500 the first ``fails`` times."""
    fails: int = 1
    slow: float = 0.0
    """Pages that answer after a time within ``delay`` (seconds)."""
    delay: tuple[float, float] = (0.1, 0.5)
    padding: int = 0
    """Bytes of text added to every page."""
    hosts: int = 1
    """Pages are spread over the hosts 127.0.0.1, 127.0.0.2, ... and links go across."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind is {self.kind!r}, must be one of {', '.join(get_args(Kind))}")
        for name in ("pages", "links", "hosts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("redirects", "missing", "failing", "slow"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share, from 0 to 1")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Shape:
        fields = json.loads(text)
        if "delay" in fields:
            low, high = fields["delay"]
            fields["delay"] = (low, high)
        return cls(**fields)


class Site:
    """A site as its shape makes it, known without any server."""

    def __init__(self, shape: Shape, port: int = 80) -> None:
        self.shape = shape
        self.port = port
        self.redirected = self._pick("redirects", shape.redirects)
        self.dead_ends = self._pick("missing", shape.missing)
        self.failing = self._pick("failing", shape.failing)
        rng = Random(f"{shape.seed}/delays")
        self.delays = {n: rng.uniform(*shape.delay) for n in sorted(self._pick("slow", shape.slow))}
        self._tree = self._grow() if shape.kind in ("tree", "random") else []
        self._padding = f"<p>{'text ' * (shape.padding // 5)}</p>\n" if shape.padding else ""

    @property
    def start_url(self) -> str:
        return self.url("/p/0")

    def url(self, path: str) -> str:
        """The whole URL of a path, on the host where its page lives."""
        tail = path.rpartition("/")[2]
        host = self.host(int(tail) if tail.isdecimal() else 0)
        return f"http://{host}:{self.port}{path}"

    def host(self, n: int) -> str:
        """Where page n lives."""
        index = n % self.shape.hosts
        return f"127.0.{index // 250}.{index % 250 + 1}"

    def hosts(self) -> list[str]:
        return [self.host(index) for index in range(self.shape.hosts)]

    def pages(self) -> set[str]:
        """The paths that a whole crawl gets a 200 for."""
        return {f"/p/{n}" for n in range(self.shape.pages)}

    def children(self, n: int) -> list[int]:
        """The pages that page n leads to, through redirects or not."""
        match self.shape.kind:
            case "tree":
                return list(self._tree[n])
            case "flat":
                first = n * self.shape.links + 1
                return list(range(first, min(first + self.shape.links, self.shape.pages)))
            case "random":
                return self._filled(n, self._tree[n], below=self.shape.pages)
            case "links":
                new = self._new_in_links(n)
                return self._filled(n, new, below=min(new, default=self.shape.pages))
            case "chain":
                first, last = (n + self.shape.links, n + self.shape.links) if n else (1, self.shape.links)
                return list(range(first, min(last + 1, self.shape.pages)))
            case "listing":
                each = self.shape.links + 1
                return [] if n % each else list(range(n + 1, min(n + each + 1, self.shape.pages)))

    def links(self, n: int) -> list[str]:
        """The paths that page n links to."""
        paths = [f"/r/{child}" if child in self.redirected else f"/p/{child}" for child in self.children(n)]
        return [*paths, f"/gone/{n}"] if n in self.dead_ends else paths

    def body(self, n: int) -> bytes:
        links = self.links(n)
        hrefs = links if self.shape.hosts == 1 else [self.url(path) for path in links]
        anchors = "".join([f'<li><a href="{href}">{href}</a></li>\n' for href in hrefs])
        return (
            f"<!DOCTYPE html>\n<html><head><title>Page {n}</title></head>\n"
            f'<body><h1>Page <b id="number">{n}</b></h1>\n{self._padding}<ul>\n{anchors}</ul></body></html>\n'
        ).encode()

    def _pick(self, what: str, share: float) -> frozenset[int]:
        if not share:
            return frozenset()
        rng = Random(f"{self.shape.seed}/{what}")
        return frozenset(n for n in range(1, self.shape.pages) if rng.random() < share)

    def _grow(self) -> list[list[int]]:
        """A random tree: every page gets a parent among those before it that have room."""
        most = self.shape.links if self.shape.kind == "tree" else max(1, self.shape.links // 2)
        rng = Random(f"{self.shape.seed}/tree")
        tree: list[list[int]] = [[]]
        roomy = [0]
        for n in range(1, self.shape.pages):
            at = rng.randrange(len(roomy))
            children = tree[roomy[at]]
            children.append(n)
            if len(children) == most:
                roomy[at] = roomy[-1]
                roomy.pop()
            tree.append([])
            roomy.append(n)
        return tree

    def _new_in_links(self, n: int) -> list[int]:
        """Pages 0 to RAMP lead to ``links`` new pages each, every later page to one."""
        each, pages = self.shape.links, self.shape.pages
        if n <= RAMP:
            return list(range(min(n * each + 1, pages), min((n + 1) * each + 1, pages)))
        child = (RAMP + 1) * each + n - RAMP
        return [child] if child < pages else []

    def _filled(self, n: int, new: list[int], below: int) -> list[int]:
        """``new`` and as many other pages as are missing to make ``links`` of them."""
        lacking = self.shape.links - len(new)
        if lacking <= 0:
            return new
        rng = Random(self.shape.seed * 1_000_003 + n)
        others = rng.sample(range(below), min(lacking, below))
        return [*new, *(other for other in others if other not in new)]
