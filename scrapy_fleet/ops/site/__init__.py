"""A local web site to crawl, in a process of its own, which keeps a log of what it was asked.

The demo, the tests and the benchmarks crawl it, and judge a crawl by the site's log and not by
what the crawler says of itself::

    from scrapy_fleet.ops.site import Shape, running

    shape = Shape("tree", pages=500, links=8, seed=7, redirects=0.1, missing=0.1, failing=0.05)
    with running(shape) as site:          # or running(shape, log=tmp_path / "site.log")
        crawl(site.start_url)             # http://127.0.0.1:<port>/p/0
        site.wait(pages=200, timeout=60)  # returns when 200 pages have been served (no polling)
        ...
        assert not site.lost()            # pages that were never answered with 200
        assert site.repeats() <= 16       # 200 answers beyond the first, over all pages
        site.visits()                     # Counter: path of a page -> how often answered with 200
        site.arrivals()                   # Counter: any path -> how often asked for
        site.log()                        # every line: time, event, host, path, status

What it serves:

========== =========================================================================
path       answer
========== =========================================================================
/p/N       page N: ``<title>Page N</title>``, ``<b id="number">N</b>``, links as ``<a href>``
/r/N       301 (even N) or 302 (odd N) to ``/p/N``
/gone/N    404
/robots.txt allows everything
/_stats    counts as JSON; ``/_stats?pages=100`` answers when there are that many (not logged)
========== =========================================================================

The same :class:`Shape` always makes the same site, and :class:`Site` knows it without a server:
``Site(shape).pages()`` is the set of paths a whole crawl must reach, ``.links(n)`` what page n links to.

By hand: ``python -m scrapy_fleet.ops.site '{"kind": "links", "pages": 5000, "links": 20}' --port 8998``.
"""

from scrapy_fleet.ops.site.running import LogLine, RunningSite, read_log, running
from scrapy_fleet.ops.site.shape import Shape, Site

__all__ = ["LogLine", "RunningSite", "Shape", "Site", "read_log", "running"]
