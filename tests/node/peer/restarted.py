"""A server in a separate process that is killed and restarted (see `tests/node/stage.py`).

Its handlers append one line per action to a file that outlives it.
"""

import os
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import anyio

from parley import Call, Node, NodeConfig
from parley._crypto.identity import Identity
from parley._crypto.registry import SIGNING
from parley._lbm.codec import Value

EFFECTS: Final = "effects"
# Topics that keep all notes, and very few.
WHOLE: Final = "whole"
SHORT: Final = "short"
KEEP: Final = {WHOLE: 1_000_000, SHORT: 5}
# Seconds between two notes, and those that a handler may take.
TICK: Final = 0.002
WORK: Final = 0.004


class Effect(NamedTuple):
    """One that a call had: of which start of the server, and the number that the call carried."""

    start: int
    number: int


def start_and_number(data: Value) -> tuple[int, int]:
    """What an answer or a note carries."""
    start, number = cast("list[int]", data)
    return start, number


def effects(directory: Path) -> list[Effect]:
    """All of them, in their order."""
    path = directory / EFFECTS
    text = path.read_text() if path.exists() else ""
    return [Effect(*map(int, line.split())) for line in text.splitlines()]


async def serve(role: dict[str, Any]) -> None:
    """Answer calls, and publish in both topics the start and the note's number in it."""
    start = role["start"]
    file = os.open(
        Path(role["directory"], EFFECTS), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    )
    identity = Identity.from_keys([SIGNING["ed25519"].load(bytes.fromhex(role["key"]))])
    node = Node(identity, config=NodeConfig(algorithms={"kex": ("x25519",)}))

    async def act(call: Call) -> list[int]:
        assert isinstance(call.data, int)
        os.write(file, f"{start} {call.data}\n".encode())
        await anyio.sleep(WORK * (call.data % 3))
        return [start, call.data]

    node.on_call("once", once=True)(act)
    node.on_call("plain")(act)
    topics = [node.topic(name, keep=keep) for name, keep in KEEP.items()]
    async with node:
        await node.listen(role["listen"])
        for number in count(1):
            for topic in topics:
                await topic.publish([start, number])
            await anyio.sleep(TICK)


ROLES: Final = {"serve": serve}
