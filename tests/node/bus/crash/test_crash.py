"""Publishers, consumers, a node that offers its bus, and Redis, killed at random points.

The expected state is what the processes recorded before they were killed. No published event is
lost, no unprocessed event is acknowledged, and an event that is processed twice has a higher
attempt. `--rounds N` kills N times, divided among the scenarios.
"""

import signal
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random  # noqa: TID251 - chooses when to kill
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._node.bus.address import open_bus
from tests.node.bus.crash.actors import GROUP, MODULES, RECLAIM_AFTER, STREAM, Line, read_lines
from tests.node.bus.crash.waiting import PATIENCE, until
from tests.node.stage import Stage
from tests.redis_server import PROGRAM, RedisServer, redis_program

# The upper limits of published and processed events before a kill. Every fourth round is instead
# killed after at most so many seconds, during startup.
MOST_EVENTS: Final = 200
EARLIEST: Final = 0.1
REDIS: Final = "redis"

# The processes by name, and the ones that each round may kill.
SCENARIOS: Final[dict[str, dict[str, str]]] = {
    "sqlite in one process": {"all": "both"},
    "sqlite in three processes": {"pub": "publish", "con1": "consume", "con2": "consume"},
    "redis": {"pub": "publish", "con1": "consume", "con2": "consume", REDIS: REDIS},
    "node over tcp": {"node": "offer", "pub": "publish", "con1": "consume"},
    "node over unix": {"node": "offer", "pub": "publish", "con1": "consume"},
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(MODULES) as stage:
        yield stage


class Scene:
    """The processes of a scenario, and the files that they write."""

    def __init__(self, name: str, stage: Stage, directory: Path, redis: RedisServer | None) -> None:
        self.cast = SCENARIOS[name]
        self.stage, self.directory, self.redis = stage, directory, redis
        self.random = Random(name)
        self.pids: dict[str, int] = {}
        self.kills: Counter[str] = Counter()
        self.bus = redis.url if redis else f"sqlite:///{directory}/bus.db"
        self.keys = {actor: new_key() for actor in self.cast}
        self.listen = ""
        if "node" in self.cast:
            port = f"127.0.0.1:{free_port()}"
            self.listen = f"unix://{directory}/socket" if "unix" in name else f"tcp://{port}"

    def start(self, number: int) -> None:
        """Start the processes that are not running."""
        for actor, role in self.cast.items():
            if role == REDIS:
                assert self.redis is not None
                if not self.redis.running:
                    self.redis.start()
            elif actor not in self.pids:
                self.pids[actor] = self.stage.start(self.role(actor, role, number))

    def role(self, actor: str, role: str, number: int) -> dict[str, Any]:
        """Return the role of a process. Its name changes every second time."""
        return {
            "role": role,
            "backend": ("asyncio", "trio")[number // 2 % 2],
            "bus": self.bus,
            "directory": str(self.directory),
            "key": self.keys[actor],
            "consumer": actor if number % 2 else "",
            "handler": number // 3 % 2 == 1,
            "listen": self.listen,
            **({"node": self.listen} if self.listen and role != "offer" else {}),
        }

    def play(self, number: int) -> None:
        """Start missing processes; kill some when enough events were published or processed."""
        published, processed = self.published, self.processed
        self.start(number)
        if number % 4 == 3:
            time.sleep(self.random.uniform(0, EARLIEST))
        else:
            count = self.random.randrange(1, MOST_EVENTS)
            until(
                lambda: (
                    len(self.published) >= len(published) + count
                    and len(self.processed) >= len(processed) + count // 2
                )
            )
        actors = list(self.cast)
        for actor in self.random.sample(actors, self.random.randint(1, len(actors))):
            self.kill(actor)

    def kill(self, actor: str) -> None:
        self.kills[actor] += 1
        if actor == REDIS:
            assert self.redis is not None
            self.redis.kill()
        else:
            self.stage.kill(self.pids.pop(actor))

    def end(self) -> None:
        """Stop publishing, and let the other processes finish all events."""
        for actor in [name for name in self.pids if name not in ("node", "con1", "all")]:
            self.kill(actor)
        if "all" in self.pids:
            self.kill("all")
        self.cast = {
            actor: role.replace("both", "consume")
            for actor, role in self.cast.items()
            if role != "publish" and actor != "con2"
        }
        self.start(0)
        anyio.run(self.all_processed)
        for actor in list(self.pids):
            self.kill(actor)

    async def all_processed(self) -> None:
        async with open_bus(self.bus) as bus:
            with anyio.fail_after(PATIENCE):
                while True:
                    groups = {group.name: group for group in await bus.groups(STREAM)}
                    if GROUP in groups and not (groups[GROUP].lag or groups[GROUP].pending):
                        break
                    await anyio.sleep(RECLAIM_AFTER / 20)
            self.stored = [
                Line(event.data["publisher"], event.data["number"], event.id, 0)
                async for event in bus.history(STREAM)
            ]
            self.dead = [event async for event in bus.history(f"{STREAM}.dead")]

    @property
    def published(self) -> list[Line]:
        return read_lines(self.directory / "published")

    @property
    def processed(self) -> list[Line]:
        return read_lines(self.directory / "processed")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=name, marks=pytest.mark.redis if name == REDIS else ())
        for name in SCENARIOS
    ],
)
def test_events_survive_kills(
    name: str, stage: Stage, rounds: int, request: pytest.FixtureRequest
) -> None:
    with TemporaryDirectory(prefix="parley-") as directory:
        redis = request.getfixturevalue("synced_redis") if name == REDIS else None
        scene = Scene(name, stage, Path(directory), redis)
        for number in range(len(range(list(SCENARIOS).index(name), rounds, len(SCENARIOS)))):
            scene.play(number)
        scene.end()
        assert_kept(scene)
        if redis is None:
            with closing(sqlite3.connect(f"{directory}/bus.db")) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def assert_kept(scene: Scene) -> None:
    published, processed, stored = scene.published, scene.processed, scene.stored
    again = len(processed) - len({line.id for line in processed})
    print(f"{len(published)} published, {len(stored)} stored, {again} processed again; killed:")
    print(", ".join(f"{actor} {times} times" for actor, times in scene.kills.items()))
    # Every event whose publish returned is stored under the returned ID.
    assert {line.event: line.id for line in published}.items() <= {
        line.event: line.id for line in stored
    }.items()
    # An event with a key is stored once, and each publisher's events are in order.
    assert_counted_up(stored)
    # All events were acknowledged, and only after they were processed.
    assert {line.id for line in stored} <= {line.id for line in processed}
    # Repeated processing is marked: no two have the same attempt.
    attempts = Counter((line.id, line.attempt) for line in processed)
    assert [one for one, times in attempts.items() if times > 1] == []
    assert scene.dead == []


POISON_ATTEMPTS: Final = 3


@pytest.mark.process
@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def test_event_that_kills_its_consumer_becomes_a_dead_letter(
    store: str, stage: Stage, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    if store == "redis":
        url = request.getfixturevalue("redis_url")
    events = [{"publisher": 0, "number": number} for number in range(5)]

    async def publish() -> None:
        async with open_bus(url) as bus:
            await bus.publish_many(STREAM, events)

    async def letters() -> list[Any]:
        async with open_bus(url) as bus:
            return [letter async for letter in bus.history(f"{STREAM}.dead")]

    anyio.run(publish)
    role = {
        "role": "consume",
        "bus": url,
        "directory": str(tmp_path),
        "consumer": "con1",
        "handler": False,  # Several workers would also restart other events.
        "poison": 1,
        "max_attempts": POISON_ATTEMPTS,
    }
    for attempt in range(POISON_ATTEMPTS):
        killed = stage.start({**role, "backend": ("asyncio", "trio")[attempt % 2]})
        assert stage.ended(killed) == -signal.SIGKILL
    last = stage.start({**role, "backend": "trio"})
    until(lambda: {line.number for line in read_lines(tmp_path / "processed")} == {0, 2, 3, 4})
    until(lambda: bool(anyio.run(letters)))
    stage.kill(last)
    (letter,) = anyio.run(letters)
    assert letter.data["data"] == events[1]
    said = [(one["attempt"], one["error"]) for one in letter.data["history"]]
    assert said[:-1] == [(n, "not acknowledged") for n in range(1, POISON_ATTEMPTS + 1)]
    # It did not use up attempts of other events.
    assert max(line.attempt for line in read_lines(tmp_path / "processed")) <= 2


def assert_counted_up(stored: list[Line]) -> None:
    numbers: dict[int, list[int]] = {}
    for line in stored:
        numbers.setdefault(line.publisher, []).append(line.number)
    for given in numbers.values():
        assert given == list(range(1, len(given) + 1))


@pytest.fixture
def synced_redis() -> Iterator[RedisServer]:
    """Yield a Redis server whose disk has everything that it confirmed."""
    if redis_program() is None:
        pytest.skip(f"there is no {PROGRAM} on this machine")
    with RedisServer(appendfsync="always") as server:
        yield server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def new_key() -> str:
    return Identity.create().keys[0].private_bytes().hex()
