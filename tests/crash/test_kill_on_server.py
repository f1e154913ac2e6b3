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
