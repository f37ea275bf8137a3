"""A proxy that loses one transport after another, in ways that a seed selects.

Every transport has its own `FaultyLink`, so that an old one may stay silent and open while the next
one carries data.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random  # noqa: TID251 - seeded: what becomes of a transport
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute, UNIXSocketStream

from parley._node.testing import FaultyLink
from parley._node.testing.proxy import UnixStream
from parley._node.transport.address import Address

# How a transport is lost, and how often of sixteen times.
BYTES, BEGINNING, MOMENT, SILENCE, ABSENCE = (
    "cut after some bytes",
    "cut within its first bytes",  # Resume, Resumed, and what proves the new transport
    "cut at some moment",
    "silent and open",
    "cut, without an answer for long",
)
LOSSES: Final = {BYTES: 5, BEGINNING: 3, MOMENT: 5, SILENCE: 2, ABSENCE: 1}
FIRST_BYTES: Final = 600
# The range of a moment in seconds, and the seconds without any answer.
SHORT: Final = 0.08
LONG: Final = (0.2, 1.0)


class LossyProxy:
    """A proxy between clients of `address` and the node at `target`, over the same kind of socket.

    After `begin`, it loses this many transports; `lost` counts them by kind. A transport that is
    cut after some bytes has carried `mean` bytes on average. `on_silence` is called every other
    time when a transport has fallen silent, as if the client knew that the network changed.
    """

    def __init__(self, target: str, directory: Path, random: Random, mean: int) -> None:
        self._target = Address.parse(target)
        self._path = directory / "proxy"
        self._random = random
        self._mean = mean
        self._deck: list[str] = []
        self._left = 0
        self._answers_at = 0.0
        self._newest: FaultyLink | None = None
        self._came = anyio.Event()  # the next transport
        self.lost: Counter[str] = Counter()
        self.on_silence: Callable[[], None] = lambda: None
        self.address = ""

    def begin(self, times: int) -> None:
        """Lose the transport that there is, and so many in all."""
        assert self._newest is not None
        self._left = times - 1
        self.lost[MOMENT] += 1
        self._newest.cut()

    async def __aenter__(self) -> Self:
        """Listen."""
        target = self._target
        if target.scheme == "unix":
            listener: Listener[Any] = await anyio.create_unix_listener(self._path)
            own = Address("unix", path=str(self._path), node_id=target.node_id)
        else:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
            port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's, no query
            own = Address("tcp", "127.0.0.1", port, node_id=target.node_id)
        self.address = str(own)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._listener = listener
        self._tasks.start_soon(listener.serve, self._accepted)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._listener)

    async def _accepted(self, client: ByteStream) -> None:
        if anyio.current_time() < self._answers_at:
            await anyio.aclose_forcefully(client)
            return
        target = self._target
        server: ByteStream
        if target.scheme == "unix":
            client = UnixStream(cast("UNIXSocketStream", client))
            server = UnixStream(await anyio.connect_unix(target.path))
        else:
            server = await anyio.connect_tcp(target.host, target.port)
        link = self._newest = FaultyLink()
        self._came.set()
        self._came = anyio.Event()
        async with anyio.create_task_group() as tasks:
            if self._left:
                self._left -= 1
                tasks.start_soon(self._lose, link, self._draw())
            await link.join(client, server)
            tasks.cancel_scope.cancel()

    def _draw(self) -> str:
        """How the next transport is lost."""
        if not self._deck:
            self._deck = [how for how, times in LOSSES.items() for _ in range(times)]
            self._random.shuffle(self._deck)
        return self._deck.pop()

    async def _lose(self, link: FaultyLink, how: str) -> None:
        """Lose a transport; ends with it."""
        random = self._random
        way = random.choice((link.to_server, link.to_client))
        most = {BYTES: 2 * self._mean, BEGINNING: FIRST_BYTES}.get(how)
        place = random.randrange(1, most) if most else None
        happened = False
        try:
            if place:
                way.cut(after=place)
                await anyio.sleep_forever()
            await anyio.sleep(random.uniform(0, SHORT))
            happened = True
            if how == ABSENCE:
                self._answers_at = anyio.current_time() + random.uniform(*LONG)
            elif how == SILENCE:
                await self._fall_silent(link)
            link.cut()
        finally:
            if happened or way.passed == place:
                self.lost[how] += 1
            else:
                self._left += 1  # somebody closed it before its time had come

    async def _fall_silent(self, link: FaultyLink) -> None:
        """Block all traffic. Data in transit arrives once there is another transport."""
        random, came = self._random, self._came
        there, back = link.to_server, link.to_client
        for way in random.choice(([there], [back], [there, back])):
            way.stall()
        if random.random() < 0.5:
            self.on_silence()
        await came.wait()
        await anyio.sleep(random.uniform(0, SHORT))
        link.resume()
        await anyio.sleep(SHORT)
