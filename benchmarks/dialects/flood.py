"""A hostile client: it floods a server in one of several ways, for as long as it is told.

It does its worst with one connection at a time, and comes back when it is hung up on.
What it costs others is measured elsewhere.
"""

import hashlib
from collections.abc import Awaitable, Callable
from time import perf_counter, sleep
from typing import Any, Final

from benchmarks.dialects.native_flood import NativeHostile
from benchmarks.dialects.pump import WRITE_SIZE, Pump, Source, connect, read_answer
from benchmarks.dialects.wires import HOSTILE, NOBODY, WIRES, Wire, message
from benchmarks.task import Task

FLOODS: Final[dict[str, str]] = {
    "requests": "requests, 512 under way, and reads what is answered",
    "unread": "requests, and reads nothing",
    "garbage": "random bytes",
    "maximal": "requests of the greatest size, and reads what is answered",
}
# Requests under way of a client that reads: fewer than may wait unanswered, so that it may go on.
WINDOW: Final = 512
MAXIMAL_WINDOW: Final = 4
BLOCKED: Final = 0.02  # seconds that a write may take before it comes back anew
PAUSE: Final = 0.001  # before it comes back


def flood(side: str, task: Task, info: dict[str, Any]) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Flood as `how` says for some seconds; the value is megabytes (10^6) a second."""
    hostile: Hostile | NativeHostile
    if side == "ours":
        hostile = NativeHostile(info["address"], task.how)
        attack = hostile.flood
    else:
        wire = WIRES[side.partition("-")[0]]
        hostile = Hostile(wire, info["address"], _requests(side, wire, task))
        attack = hostile.ask if task.how in ("requests", "maximal") else hostile.write

    async def measure() -> dict[str, Any]:
        _repeat(attack, task.seconds)
        return {
            "operations": max(1, hostile.sent),
            "value": hostile.sent / task.seconds / 1e6,
            "connections": hostile.connections,
        }

    return measure


def _repeat(attack: Callable[[float], None], seconds: float) -> None:
    end = perf_counter() + seconds
    while perf_counter() < end:
        try:
            attack(end)
        except OSError:
            sleep(PAUSE)  # blocked or hung up on: a moment later a UUID is free again


def _requests(side: str, wire: Wire, task: Task) -> list[bytes]:
    """What is written again and again."""
    if task.how == "garbage":
        return [hashlib.shake_128(b"garbage").digest(WRITE_SIZE)]
    if task.how == "maximal":
        return [wire.largest()]
    if side == "relay":
        # Of the requests, each is answered with an error; unread, each comes back.
        return [message(NOBODY if task.how == "requests" else HOSTILE, HOSTILE, task.payload)]
    return [wire.request(task.payload, number) for number in range(1, 2 * WINDOW + 1)]


class Hostile:
    """One hostile client. `sent` counts bytes, `connections` how often it came."""

    def __init__(self, wire: Wire, address: str, requests: list[bytes]) -> None:
        self._wire = wire
        self._address = address
        self._requests = requests
        self.sent = 0
        self.connections = 0

    def ask(self, end: float) -> None:
        """Requests as quickly as they are answered; OSError if it is hung up on."""
        size = len(self._requests[0])
        window = WINDOW if size < WRITE_SIZE else MAXIMAL_WINDOW
        with connect(self._address, self._wire.hello(HOSTILE)) as connection:
            self.connections += 1
            connection.sendall(self._requests[0])
            answer = len(read_answer(connection, self._wire))
            source = Source(connection, self._requests)
            pump = Pump([source], [connection], size, answer, window)
            try:
                pump.run(end - perf_counter())
            finally:
                self.sent += pump.sent

    def write(self, end: float) -> None:
        """Whatever it is, without reading; OSError if it is hung up on or blocked."""
        with connect(self._address, self._wire.hello(HOSTILE)) as connection:
            self.connections += 1
            source = Source(connection, self._requests)
            connection.settimeout(BLOCKED)
            size = min(WRITE_SIZE, WINDOW * len(self._requests[0]))
            # One that is wrong anyhow need not take care.
            pause = self._wire.pause if len(self._requests) > 1 else 0.0
            while perf_counter() < end:
                self.sent += source.push(size)
                if pause:
                    sleep(pause)
