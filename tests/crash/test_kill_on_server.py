"""SIGKILL at random moments, of workers and of the server they share."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.crash.rounds import a_shape, kill_rounds
from tests.servers import RedisServer

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("kind", ["tree", "random"])
def test_kills_of_workers_and_server_lose_nothing_and_repeat_little(
    kind: Literal["tree", "random"], server: RedisServer, tmp_path: Path
) -> None:
    verdict = kill_rounds(tmp_path, a_shape(kind, seed=11), seed=11, rounds=5, server=server, workers=3)
    assert not verdict.wrong, verdict
    assert verdict.kills >= verdict.rounds
    assert verdict.server_kills == 3


def test_kills_lose_nothing_with_rolling_keys(server: RedisServer, tmp_path: Path) -> None:
    shape, settings = a_shape("random", seed=21, pages=150), {"FLEET_SEEN": "rolling"}
    verdict = kill_rounds(tmp_path, shape, seed=21, rounds=2, server=server, settings=settings)
    assert not verdict.wrong, verdict
