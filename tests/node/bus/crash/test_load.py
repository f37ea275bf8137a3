"""A SQLite bus under a load of large events: killed, on a full disk, or opened by another process.

A kill happens in the n-th write or at random.

Large events cause a checkpoint every few batches, so that most kills happen during one. In every
case the bus opens, each batch is stored once and whole or not at all, confirmed batches are stored,
and all events can be processed. `--rounds N` kills N times, divided among the tests.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random  # noqa: TID251 - chooses when to kill
from typing import Any, Final

import pytest

from tests.node.bus.crash.actors import MODULES, read_lines
from tests.node.bus.crash.load import BATCH
from tests.node.bus.crash.waiting import until
from tests.node.bus.small_disk import on_small_disk
from tests.node.stage import Stage

# A kill happens in one of so many writes (about six batches and their checkpoints), or after so
# many published batches.
MOST_WRITES: Final = 400
MOST_BATCHES: Final = 8
DISK: Final = 3_000_000
BALLAST: Final = 1_000_000
# More than any round publishes.
APART: Final = 10_000


class Scene:
    """A bus, and the records of its publishers."""

    def __init__(self, stage: Stage, bus: Path, notes: Path, seed: str) -> None:
        self._stage = stage
        self.bus = bus
        self._notes = notes
        self.random = Random(seed)
        self.rounds = 0

    def start(self, role: str, **more: Any) -> int:
        return self._stage.start(
            {
                "role": role,
                "backend": ("asyncio", "trio")[self.rounds % 2],
                "bus": f"sqlite:///{self.bus}",
                "directory": str(self._notes),
                **more,
            }
        )

    def load(self, *, write: int = 0) -> int:
        """Start a publisher that is killed in its write number `write`."""
        self.rounds += 1
        torn = self.random.random() < 0.5
        return self.start("load", first=self.rounds * APART, write=write, torn=torn)

    def kill(self, pid: int) -> None:
        self._stage.kill(pid)

    def killed_in_write(self) -> None:
        """Run a publisher until its last write."""
        pid = self.load(write=self.random.randrange(1, MOST_WRITES))
        assert self._stage.ended(pid) == -9

    def killed_at_random(self) -> None:
        """Run a publisher until some batches were published."""
        pid = self.load()
        self.until_more("published", self.random.randrange(MOST_BATCHES))
        self.kill(pid)

    def until_more(self, name: str, count: int) -> None:
        before = len(read_lines(self._notes / name))
        until(lambda: len(read_lines(self._notes / name)) >= before + count)

    def settle(self, *, trim: bool) -> None:
        """Check that all published batches are stored, and process them."""
        found = self._notes / "settled"
        self._stage.ended(self.start("settle", trim=trim))
        said = json.loads(found.read_text())
        found.unlink()
        batches = Counter(batch for batch, _ in said["stored"])
        published = {line.publisher: line.id for line in read_lines(self._notes / "published")}
        assert set(batches.values()) <= {BATCH}
        assert published.items() <= dict(said["stored"]).items()
        assert said["left"] == [0, 0]
        if trim:
            (self._notes / "published").unlink(missing_ok=True)

    def on_disk(self, role: str, **more: Any) -> None:
        self._stage.ended(self.start(role, disk=str(self.bus.parent), **more))


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage(MODULES) as stage:
        yield stage


@pytest.mark.parametrize("end", [Scene.killed_in_write, Scene.killed_at_random])
def test_large_events_survive_kills(
    end: Callable[[Scene], None], stage: Stage, tmp_path: Path, rounds: int
) -> None:
    scene = Scene(stage, tmp_path / "bus.db", tmp_path, end.__name__)
    for _ in range(rounds * 2 // 5):
        end(scene)
        scene.settle(trim=scene.random.random() < 0.5)


@pytest.mark.mounts
def test_large_events_survive_kills_on_a_full_disk(tmp_path: Path, rounds: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with Stage(MODULES, lambda command: on_small_disk(disk, DISK, command)) as stage:
        scene = Scene(stage, disk / "bus.db", tmp_path, "full")
        for number in range(rounds // 5):
            scene.on_disk("clear")
            scene.on_disk("ballast", size=BALLAST)
            if number % 3 == 0:
                scene.killed_in_write()
            full = scene.load()
            scene.until_more("refused", 1)
            scene.kill(full)
            scene.settle(trim=number % 2 == 0)
            if number % 2:
                scene.on_disk("ballast", size=0)
            again = scene.load()
            scene.until_more("published", 1)
            scene.kill(again)
            scene.settle(trim=True)


@pytest.mark.process
def test_a_bus_opens_beside_a_publisher_under_load(stage: Stage, tmp_path: Path) -> None:
    scene = Scene(stage, tmp_path / "bus.db", tmp_path, "beside")
    publisher = scene.load()
    scene.until_more("published", 1)
    looker = scene.start("look")
    scene.until_more("looked", 100)
    scene.kill(looker)
    scene.until_more("published", 1)
    scene.kill(publisher)
    scene.settle(trim=False)
