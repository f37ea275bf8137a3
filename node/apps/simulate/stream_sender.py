"""Actors that send files, readings and named events, and that change keys.

Each ends with its connection; failures are counted and not raised.
"""

from typing import Final

import anyio

from parley._node.apps.simulate.draws import Draws
from parley._node.apps.simulate.offers import FILES, READING, TELEMETRY, UNWANTED, Sleep
from parley._node.apps.simulate.plan import Plan
from parley._node.apps.simulate.tally import ACCEPTED, LOST, Tally
from parley._node.errors import CallRefused, PeerClosedError, StreamResetError
from parley._node.peer.peer import Peer
from parley._node.protocol.errors import LocalProtocolError

# Times a second and side of a connection, at rate 1.
FILE_RATE: Final = 1 / 20
EVENT_RATE: Final = 0.4
READING_RATE: Final = 1.0
# Neither grows with the rate: keys change by time and volume.
KEY_RATE: Final = 1 / 25
_PIECE: Final = 16 * 1024
_LARGEST_FILE: Final = 2**20


class StreamSender:
    """Sends on one side of a connection."""

    def __init__(self, plan: Plan, peer: Peer, draws: Draws, sleep: Sleep, tally: Tally) -> None:
        self._plan = plan
        self._peer = peer
        self._draws = draws
        self._sleep = sleep
        self._tally = tally

    async def files(self) -> None:
        """Send files, one after another; some are not wanted, some are given up."""
        draws = self._draws
        while self._peer.is_open:
            await self._sleep(draws.pause(FILE_RATE * self._plan.rate))
            size = min(_LARGEST_FILE, 1 + int(draws.lognormvariate(10.5, 1.3)))
            fate = draws.choices(("report", UNWANTED, "given-up"), (8, 1, 1))[0]
            try:
                await self._file(f"{FILES}{fate}-{draws.randint(1, 999)}", size, fate)
            except StreamResetError:
                self._tally.files["refused"] += 1
            except PeerClosedError:
                self._tally.files[LOST] += 1

    async def _file(self, label: str, size: int, fate: str) -> None:
        content = self._draws.randbytes(size)
        async with self._peer.open_stream(label) as stream:
            for start in range(0, size, _PIECE):
                await stream.send(content[start : start + _PIECE])
                if fate == "given-up" and start:
                    stream.reset()
                    self._tally.files["given-up"] += 1
                    return
            await stream.send_eof()
            await stream.receive()
        self._tally.files[ACCEPTED] += 1
        self._tally.file_bytes += size

    async def readings(self) -> None:
        """Events of the application's own, on a stream that lasts."""
        number = 0
        try:
            async with self._peer.open_stream(TELEMETRY) as stream:
                while True:
                    await self._sleep(self._draws.pause(READING_RATE * self._plan.rate))
                    number += 1
                    await stream.send_event(*READING, {"number": number, "celsius": 21.5})
                    self._tally.application_events += 1
        except (StreamResetError, PeerClosedError, anyio.ClosedResourceError):
            return

    async def events(self) -> None:
        """Named events: some are answered, some more than once, some by nobody."""
        draws = self._draws
        while self._peer.is_open:
            await self._sleep(draws.pause(EVENT_RATE * self._plan.rate))
            name = draws.choices(("greet", "progress", "log", "unheard"), (5, 2, 3, 1))[0]
            try:
                await self._emit(name)
                self._tally.emits[name] += 1
            except (PeerClosedError, CallRefused):
                self._tally.emits[LOST] += 1

    async def _emit(self, name: str) -> None:
        peer = self._peer
        match name:
            case "greet":
                await peer.emit("greet", "everybody").reply()
            case "progress":
                async with peer.emit("progress", 7, namespace="jobs").replies() as replies:
                    async for _ in replies:
                        pass
            case "log":
                line = self._draws.payload(self._plan.payload)
                await peer.emit("log", {"line": line}, namespace="jobs", format="msgpack")
            case _:
                await peer.emit("unheard").reply()

    async def keys(self) -> None:
        """Change keys now and then, by ourselves or with the other side."""
        while self._peer.is_open:
            await self._sleep(self._draws.pause(KEY_RATE))
            try:
                if self._draws.once_in(3):
                    await self._peer.rekey()
                    self._tally.rekeys += 1
                else:
                    self._peer.update_keys()
                    self._tally.key_updates += 1
            except (PeerClosedError, LocalProtocolError):
                continue
