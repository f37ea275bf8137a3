"""Vectors for what may come on a stream `tunnel` (section 19)."""

from typing import Any

from tests.reference.dialling import dial_payload
from tests.reference.tunnel import FIRST_DATA, FIRST_WINDOW, LARGEST_WINDOW, LONGEST_DATA, TunnelHop
from tests.reference.wire import TYPES, Event, Violation, cells_payload

Vector = dict[str, Any]
_DIAL = dial_payload([bytes([n]) * 32 for n in (1, 2, 3)], bytes(16), 30_000)
_BYTES = b"some bytes"


def _event(name: str, async_id: int = 0, payload: bytes = b"", /, **cells: Any) -> Event:
    return Event(3, async_id, *TYPES[name], cells_payload(**cells) if cells else payload)


_CALL = _event("Call", 7, topic="parley.echo", data=1)
_APPLICATION = Event(3, 0, 64, 1, b"x")
# The event on a stream without any event, on one with a Dial, and on joined ones.
_FIRST: dict[str, Event] = {
    "a Dial": _event("Dial", 1, _DIAL),
    "a Dial under another async id": _event("Dial", 2, _DIAL),
    "a Dial without an async id": _event("Dial", 0, _DIAL),
    "a Call": _CALL,
    "an Emit": _event("Emit", 7, name="ping"),
    "an application's event": _APPLICATION,
    "a Cancel": _event("Cancel", request=1),
    "Data": _event("Data", 0, _BYTES),
}
_SECOND: dict[str, Event] = {
    "a Cancel of the Dial": _event("Cancel", request=1),
    "a second Dial": _event("Dial", 1, _DIAL),
    "a Call": _CALL,
    "an application's event": _APPLICATION,
    "Data": _event("Data", 0, _BYTES),
}
_JOINED: dict[str, Event] = {
    "Data": _event("Data", 0, _BYTES),
    "the longest Data": _event("Data", 0, bytes(FIRST_DATA)),
    "Finish": _event("Finish"),
    "Data that is too long": _event("Data", 0, bytes(FIRST_DATA + 1)),
    "a Call": _CALL,
    "a Call without an async id": _event("Call", 0, topic="parley.echo"),
    "a Subscribe": _event("Subscribe", 7, topic="news"),
    "a Result": _event("Result", 7, code=0),
    "a Cancel": _event("Cancel", request=1),
    "a Chunk": _event("Chunk", 7, data=1),
    "Notes": _event("Notes", notes=[1]),
    "an Emit": _event("Emit", 7, name="ping"),
    "a Login": _event("Login", 7, b"\xa0"),
    "a request of the bus": Event(3, 7, 6, 12, b"\xa0"),
    "a second Answer": _event("Tunnel Answer", 1, code=0),
    "Have": _event("Have", have=[]),
    "a reserved category": Event(3, 0, 9, 1, b"x"),
    "an application's event": _APPLICATION,
}
_CASES: dict[str, tuple[str, str, dict[str, Event]]] = {
    "in place of the Dial": ("opened", "opener", _FIRST),
    "between the Dial and its Answer": ("dialled", "opener", _SECOND),
    "on a joined stream": ("joined", "opener", _JOINED),
    "on a joined stream, from the target": ("joined", "target", _JOINED),
}


# The window of the stream, and the length of the Data.
_SIZES: tuple[tuple[int, int], ...] = (
    (FIRST_WINDOW, FIRST_DATA),
    (FIRST_WINDOW, FIRST_DATA + 1),
    (FIRST_WINDOW, LONGEST_DATA),
    (2 * FIRST_WINDOW, FIRST_DATA + 1),
    (2 * FIRST_WINDOW, LONGEST_DATA),
    (2 * FIRST_WINDOW, LONGEST_DATA + 1),
    (LARGEST_WINDOW, LONGEST_DATA),
    (LARGEST_WINDOW, LONGEST_DATA + 1),
)


def data_vectors() -> list[Vector]:
    """One Data on a joined stream whose window was enlarged, at the server between."""
    vectors: list[Vector] = []
    for side in ("opener", "target"):
        for window, size in _SIZES:
            hop = TunnelHop(opened=True, window=window)
            vector: Vector = {
                "name": f"tunnel-data: {size} bytes in a window of {window}, from the {side}",
                "kind": "tunnel-data",
                "from": side,
                "window": window,
                "size": size,
            }
            try:
                expected = hop.receive(_event("Data", 0, bytes(size)))
                vectors.append({**vector, "expected": expected})
            except Violation as violation:
                vectors.append({**vector, "fails": violation.code, "why": violation.why})
    return vectors


def tunnel_vectors() -> list[Vector]:
    """One event on a stream `tunnel`, at the server between."""
    vectors = data_vectors()
    for where, (state, side, events) in _CASES.items():
        for name, event in events.items():
            hop = TunnelHop(opened=side == "target")
            if state != "opened" and side == "opener":
                hop.receive(_FIRST["a Dial"])
            if state == "joined":
                hop.answer()
            vector: Vector = {
                "name": f"tunnel: {name}, {where}",
                "kind": "tunnel",
                "state": state,
                "from": side,
                "raw_event": event.raw.hex(),
            }
            try:
                vectors.append({**vector, "expected": hop.receive(event)})
            except Violation as violation:
                vectors.append({**vector, "fails": violation.code, "why": violation.why})
    return vectors
