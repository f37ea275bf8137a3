"""What a load generator does for each kind of work, over raw sockets.

Connections and one first request happen before the measure begins. Knows the dialects'
bytes, and nothing of the project.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from benchmarks.dialects.flood import flood
from benchmarks.dialects.pump import (
    Pump,
    Source,
    connect,
    percentile,
    read_answer,
    read_exactly,
    take_turns,
)
from benchmarks.dialects.wires import EVERYBODY, WIRES, Wire, message
from benchmarks.task import Task, Work

# Requests under way: enough that the server always has some to read.
RELAY_WINDOW = 4_096
BROADCAST_WINDOW = 64
BLOCK = 8_192  # requests of different ids, or targets, in a row

Measure: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]


def pump(side: str, task: Task, info: dict[str, Any]) -> Measure:
    """As many requests as `count` in flight make; through a relay, `how` says whose they
    are: `one` client's to another, `mixed` between `count`, or `broadcast` to `count`."""
    if side == "relay":
        made = RELAY_PUMPS[task.how](task, info["address"])
    else:
        made = _requests(WIRES[side.partition("-")[0]], task, info["address"])

    async def measure() -> dict[str, Any]:
        value, lost = made.run(task.seconds)
        return {"operations": made.operations, "value": value, "lost": lost}

    return measure


def _requests(wire: Wire, task: Task, address: str) -> Pump:
    connection = connect(address, wire.hello(0))
    requests = [wire.request(task.payload, number) for number in range(1, BLOCK + 1)]
    connection.sendall(requests[0])
    answer = read_answer(connection, wire)
    if task.payload not in answer:
        raise ValueError("an answer without what was sent")
    source = Source(connection, requests)
    return Pump([source], [connection], len(requests[0]), len(answer), task.count)


def _clients(address: str, count: int) -> list[Any]:
    """So many clients of a relay, all of which it has let in."""
    wire = WIRES["relay"]
    clients = [connect(address, wire.hello(number)) for number in range(count)]
    for number, client in enumerate(clients):
        client.sendall(wire.request(b"here", number))
        read_answer(client, wire)
    return clients


def _one(task: Task, address: str) -> Pump:
    clients = _clients(address, 2)
    text = message(1, 0, task.payload)
    return Pump([Source(clients[0], [text])], clients, len(text), len(text), RELAY_WINDOW)


def _mixed(task: Task, address: str) -> Pump:
    clients = _clients(address, task.count)
    sources = []
    for number, client in enumerate(clients):
        others = [other for other in range(task.count) if other != number]
        # Each message goes to another client than the one before it.
        sources.append(Source(client, [message(to, number, task.payload) for to in others]))
    size = len(message(0, 0, task.payload))
    return Pump(sources, clients, size, size, RELAY_WINDOW)


def _broadcast(task: Task, address: str) -> Pump:
    clients = _clients(address, task.count + 1)
    text = message(EVERYBODY, 0, task.payload)
    return Pump(
        [Source(clients[0], [text])], clients, len(text), len(text), BROADCAST_WINDOW, task.count
    )


RELAY_PUMPS: Mapping[str, Callable[[Task, str], Pump]] = {
    "one": _one,
    "mixed": _mixed,
    "broadcast": _broadcast,
}


def turns(side: str, task: Task, info: dict[str, Any]) -> Measure:
    """One request after another: its median and its 99th percentile, in microseconds. A
    broadcast has arrived when the last of `count` has it."""
    wire = WIRES[side.partition("-")[0]]
    if side == "relay":
        count = task.count if task.how == "broadcast" else 1
        sender, *receivers = _clients(info["address"], count + 1)
        text = message(EVERYBODY if task.how == "broadcast" else 1, 0, task.payload)
        size = len(text)
    else:
        sender = connect(info["address"], wire.hello(0))
        receivers = [sender]
        text = wire.request(task.payload, 1)
        sender.sendall(text)
        size = len(read_answer(sender, wire))

    def request() -> None:
        sender.sendall(text)

    def answer() -> None:
        for receiver in receivers:
            read_exactly(receiver, size)

    async def measure() -> dict[str, Any]:
        taken = take_turns(request, answer, task.seconds)
        return {
            "operations": len(taken) * len(receivers),
            "value": percentile(taken, 0.5),
            "p99": percentile(taken, 0.99),
            "worst": taken[-1],
        }

    return measure


LOADS: Mapping[Work, Callable[[str, Task, dict[str, Any]], Measure]] = {
    "pump": pump,
    "turns": turns,
    "flood": flood,
}
