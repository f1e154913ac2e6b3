"""The site that all other tests crawl: it must itself be what it says."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import pytest

from scrapy_fleet.ops.site import RunningSite, Shape, Site, read_log, running


def reached(site: Site) -> set[str]:
    """Every path met by following the links from the start."""
    found, todo = {"/p/0"}, [0]
    while todo:
        for path in site.links(todo.pop()):
            kind, n = path[1:].split("/")
            if kind != "gone" and f"/p/{n}" not in found:
                found.add(f"/p/{n}")
                todo.append(int(n))
    return found


def get(site: RunningSite, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(site.url(path).split("/")[2])
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, response.headers.get("Location") or body


@pytest.mark.parametrize("kind", ["tree", "flat", "random", "links", "chain", "listing"])
@pytest.mark.parametrize("pages", [1, 2, 500])
@pytest.mark.parametrize("links", [1, 8])
def test_every_page_can_be_reached(kind: str, pages: int, links: int) -> None:
    site = Site(Shape(kind, pages, links, redirects=0.2, missing=0.2))
    assert reached(site) == site.pages()


@pytest.mark.parametrize("kind", ["tree", "flat", "chain", "listing"])
def test_trees_link_each_page_once(kind: str) -> None:
    site = Site(Shape(kind, pages=300, links=5))
    children = [child for n in range(300) for child in site.children(n)]
    assert sorted(children) == list(range(1, 300))


def test_link_heavy_site_has_5_percent_new_links() -> None:
    site = Site(Shape("links", pages=2000, links=20))
    assert {len(set(site.links(n))) for n in range(2000)} == {20}


def test_same_shape_same_site() -> None:
    shape = Shape("random", pages=50, seed=3, redirects=0.3, slow=0.3, delay=(1, 2), hosts=3)
    again = Shape.from_json(shape.to_json())
    assert again == shape
    assert [Site(again).body(n) for n in range(50)] == [Site(shape).body(n) for n in range(50)]
    other = Site(Shape("random", pages=50, seed=4))
    assert [other.body(n) for n in range(50)] != [Site(shape).body(n) for n in range(50)]


@pytest.mark.parametrize("wrong", ['{"kind": "ring"}', '{"pages": 0}', '{"slow": 2}'])
def test_senseless_shapes_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"kind|pages|slow"):
        Shape.from_json(wrong)


def test_serves_what_the_shape_says(tmp_path: Path) -> None:
    shape = Shape("tree", pages=40, seed=1, redirects=1, missing=1, failing=1, fails=2, hosts=2)
    log = tmp_path / "site.log"
    with running(shape, log=log) as site:
        assert get(site, "/robots.txt")[0] == 200
        status, body = get(site, "/p/0")
        assert (status, f'<a href="{site.url(site.site.links(0)[0])}">' in body) == (200, True)
        assert get(site, "/r/1") == (302, site.url("/p/1"))
        assert get(site, "/r/2") == (301, site.url("/p/2"))
        assert get(site, "/gone/1")[0] == get(site, "/p/40")[0] == 404
        assert [get(site, "/p/1")[0] for _ in range(4)] == [500, 500, 200, 200]

        assert site.arrivals()["/p/1"] == 4
        assert site.visits() == {"/p/0": 1, "/p/1": 2}
        assert site.repeats() == 1
        assert site.lost() == site.site.pages() - {"/p/0", "/p/1"}
        assert {line.host for line in site.log() if line.path == "/p/1"} == {"127.0.0.2"}
        counts = site.wait(visits=3, pages=2)
        assert counts["status_404"] == counts["status_500"] == 2
        with pytest.raises(TimeoutError):
            site.wait(pages=3, timeout=0.1)
    assert [line.event for line in read_log(log)][:2] == ["arrive", "done"]


def test_connection_is_kept_and_requests_may_come_in_pieces() -> None:
    with running(Shape(pages=3, slow=1, delay=(0.01, 0.01))) as site:
        with socket.create_connection(("127.0.0.1", site.port), timeout=30) as client:
            request = "".join(f"GET /p/{n} HTTP/1.1\r\nHost: x\r\n\r\n" for n in range(3)).encode()
            client.sendall(request[:10])
            site.stats()
            client.sendall(request[10:])
            received = b""
            while received.count(b"</html>") < 3:
                received += client.recv(65536)
        assert [received.find(b"<title>Page %d" % n) for n in range(3)] == sorted(
            received.find(b"<title>Page %d" % n) for n in range(3)
        )


def test_client_that_leaves_is_no_visitor() -> None:
    with running(Shape(pages=2, slow=1, delay=(600, 600))) as site:
        with socket.create_connection(("127.0.0.1", site.port), timeout=30) as client:
            client.sendall(b"GET /p/1 HTTP/1.1\r\nHost: x\r\n\r\n")
            site.wait(arrivals=1)
        site.wait(left=1)
        assert [line.event for line in site.log()] == ["arrive", "left"]
        assert not site.visits()
