"""Links to a server that is killed and restarted, and whose sessions are lost.

Calls with `once` run once or are reported as unknown; notes arrive complete and in order, or their
gaps are counted. `--rounds N` kills N times, distributed over the tests.
"""

import logging
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from random import Random  # noqa: TID251 - when to kill
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import pytest

from parley import Node
from parley._crypto.identity import Identity
from parley._node.errors import OutcomeUnknownError, PeerClosedError
from parley._node.peer.link import Link
from parley._node.transport.address import Address
from tests.node.network import PATIENCE, config, eventually, nothing_left
from tests.node.peer.restarted import KEEP, WHOLE, effects, start_and_number
from tests.node.peer.servers import QUICK
from tests.node.stage import Stage

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TRANSPORTS: Final = ("tcp", "unix")
TESTS: Final = 2 * len(TRANSPORTS)  # that share the kills
CALLERS: Final = 8
# A kill comes when so many calls more were answered, at most; in every fourth round the session was
# lost before, in every other fourth it comes so many seconds after the start, at most: before a
# handshake, or in it.
MOST_CALLS: Final = 100
EARLIEST: Final = 0.15


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(["tests.node.peer.restarted"]) as stage:
        yield stage


def free_port() -> int:
    """Return a free port outside of the range for outgoing connections, in which a dial could reach
    itself.
    """
    for port in range(20_000, 30_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class Restarts:
    """A server that stops and restarts under one key and one address, and a link's results.

    `outcomes` are the results of calls, by number: the start that answered, or an error.
    """

    def __init__(self, stage: Stage, directory: Path, listen: str, seed: str) -> None:
        self.directory = directory
        self.starts = 0
        self.lost = 0
        self.outcomes: dict[int, int | type[PeerClosedError]] = {}
        self.asked = self.answered = 0
        self.last: dict[str, int] = dict.fromkeys(KEEP, 0)  # the start of the last note
        self.notes: Counter[str] = Counter()
        self.gaps: Counter[str] = Counter()
        self.recovered: Counter[str] = Counter()
        self.is_over = False
        self._identity = Identity.create()
        self._stage = stage
        self._listen = listen
        self._random = Random(seed)

    @property
    def address(self) -> str:
        """What to dial."""
        return str(Address.parse(self._listen).with_node_id(self._identity.node_id))

    # The server.

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs, on the other loop than the one before; then it is killed."""
        self.starts += 1
        process = self._stage.start(
            {
                "role": "serve",
                "backend": ("asyncio", "trio")[self.starts % 2],
                "start": self.starts,
                "directory": str(self.directory),
                "key": self._identity.keys[0].private_bytes().hex(),
                "listen": self._listen,
            }
        )
        try:
            yield
        finally:
            self._stage.kill(process)

    async def play(self, link: Link, number: int) -> None:
        """Start it, let something happen, and kill it."""
        with self.running():
            if number % 4 == 3:
                await anyio.sleep(self._random.uniform(0, EARLIEST))
                return
            await self._calls()
            if number % 4 == 1:
                await self.lose(link)

    async def lose(self, link: Link) -> None:
        """The session is over for the client, while the server keeps it for half a minute."""
        await eventually(lambda: self.last[WHOLE] == self.starts)
        peer = await link.ready(PATIENCE)
        recovered = self.recovered[WHOLE]
        peer.live.lost("given up")
        self.lost += 1
        await eventually(lambda: self.recovered[WHOLE] > recovered)
        await self._calls()

    async def end(self) -> None:
        """It was started for a last time: all that was asked has its outcome."""
        await self._calls()
        await eventually(lambda: all(start == self.starts for start in self.last.values()))
        self.is_over = True
        await eventually(lambda: len(self.outcomes) == self.asked)

    async def _calls(self) -> None:
        enough = self.answered + self._random.randrange(1, MOST_CALLS)
        await eventually(lambda: self.answered >= enough)

    # The link.

    async def call(self, link: Link) -> None:
        """One call after the other, most of them made once."""
        while not self.is_over:
            self.asked += 1
            number = self.asked
            try:
                topic = "once" if is_once(number) else "plain"
                answer = await link.call(topic, number, once=is_once(number))
            except PeerClosedError as error:
                self.outcomes[number] = type(error)
            else:
                self.outcomes[number], carried = start_and_number(answer)
                assert carried == number
                self.answered += 1

    async def read(self, link: Link, name: str) -> None:
        """Each note is the next one, except for counted gaps."""
        last = gaps = 0
        async with link.subscribe(name) as subscription:
            async for note in subscription:
                start, number = start_and_number(note)
                missing = subscription.gaps - gaps
                if start == self.last[name]:
                    assert number == last + 1 + missing
                    assert not (missing and name == WHOLE)
                    self.recovered[name] += subscription.recovered
                else:
                    assert start > self.last[name]
                    assert not subscription.recovered
                    assert (number, missing) == (1, 0) or name != WHOLE
                assert subscription.number == number
                self.last[name], last, gaps = start, number, subscription.gaps
                self.notes[name] += 1
                self.gaps[name] += missing


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_link_over_a_server_that_is_killed(
    anyio_backend: str,
    transport: str,
    stage: Stage,
    rounds: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)  # a record would hold the peer that it names
    with TemporaryDirectory() as name:
        listen = (
            f"unix://{name}/socket" if transport == "unix" else f"tcp://127.0.0.1:{free_port()}"
        )
        restarts = Restarts(stage, Path(name), listen, f"{transport} {anyio_backend}")
        with nothing_left():
            link = await go_through(restarts, rounds // TESTS)
        check(restarts)
        told = Counter("ok" if isinstance(one, int) else one for one in restarts.outcomes.values())
        print(f"{restarts.starts} starts, {restarts.lost} sessions lost, {link} sessions, {told}")
        print(f"{restarts.notes}, {restarts.gaps} missing, recovered {restarts.recovered}")


async def go_through(restarts: Restarts, kills: int) -> int:
    """All of it; how many sessions the link had."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node(Identity.create(), config=config(resume=30.0)))
        link = node.link(restarts.address, pauses=QUICK)
        await stack.enter_async_context(link)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for _ in range(CALLERS):
            tasks.start_soon(restarts.call, link)
        for name in KEEP:
            tasks.start_soon(restarts.read, link, name)
        for number in range(kills):
            await restarts.play(link, number)
        with restarts.running():
            await restarts.end()
            tasks.cancel_scope.cancel()
            await stack.aclose()
        return link.sessions


def is_once(number: int) -> bool:
    """Whether a call is made once, by its number."""
    return number % 4 > 0


def check(restarts: Restarts) -> None:
    """The callers' results match the recorded actions."""
    done = effects(restarts.directory)
    ran = Counter(effect.number for effect in done)
    starts = {effect.number: effect.start for effect in done}
    assert max(ran.values()) == 1
    for number, outcome in restarts.outcomes.items():
        if isinstance(outcome, int):
            assert (ran[number], starts[number]) == (1, outcome)
        elif is_once(number):
            assert outcome is OutcomeUnknownError
    assert restarts.gaps[WHOLE] == 0
