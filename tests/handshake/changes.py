"""Changes of handshake events, from bytes to bytes, for `Misbehaviour` of the reference."""

from collections.abc import Mapping
from typing import Any, Final

from tests.reference import cbor
from tests.reference.establish import Change
from tests.reference.handshake import network_mac
from tests.reference.recorded import seed
from tests.reference.wire import CELLS, Event

NETWORK_KEY: Final = seed("network key")


def cells_of(event: bytes) -> dict[int, Any]:
    """Return all cells of a raw event, including noise."""
    return cbor.decode_payload(event[8:], keep_noise=True)


def having(also: Mapping[int, Any] | None = None, /, **cells: Any) -> Change:
    """Replace cells; None removes a cell. Computes the network MAC again unless it is given."""
    changed = {CELLS[name]: value for name, value in cells.items()} | dict(also or {})

    def change(event: bytes) -> bytes:
        new = cells_of(event) | changed
        new = {key: value for key, value in new.items() if value is not None}
        if CELLS["mac"] in new and "mac" not in cells:
            new[CELLS["mac"]] = network_mac(NETWORK_KEY, new)
        return event[:8] + cbor.encode_payload(new)

    return change


def within(name: str, **changes: Any) -> Change:
    """Replace entries of the map in a cell, by number 'n1' or by text; None removes one."""

    def change(event: bytes) -> bytes:
        inner = dict(cells_of(event)[CELLS[name]])
        for key, value in changes.items():
            place = int(key[1:]) if key[0] == "n" and key[1:].isdigit() else key
            inner[place] = value
        inner = {key: value for key, value in inner.items() if value is not None}
        return having(**{name: inner})(event)

    return change


def keeping_mac(change: Change) -> Change:
    """Change a Hello but keep the network MAC of the unchanged Hello."""

    def changed(event: bytes) -> bytes:
        new = change(event)
        try:
            return having(mac=cells_of(event)[CELLS["mac"]])(new)
        except cbor.LbmError:
            return new

    return changed


def head(stream: int, async_id: int, category: int, subcategory: int) -> Change:
    """Replace the head of a raw event and keep its payload."""
    return lambda data: Event(stream, async_id, category, subcategory).raw[:8] + data[8:]


def payload(data: bytes) -> Change:
    """Replace the payload of a raw event."""
    return lambda event: event[:8] + data


def instead(event: bytes) -> Change:
    """Send another event."""
    return lambda _: event


def ending(extra: bytes) -> Change:
    """Append bytes."""
    return lambda event: event + extra


def flip(at: int) -> Change:
    """Change one bit of a byte."""
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


def zeros(begin: int, size: int) -> Change:
    """Replace bytes by zeros."""
    return lambda event: event[:begin] + bytes(size) + event[begin + size :]


def without(begin: int, size: int) -> Change:
    """Remove bytes."""
    return lambda event: event[:begin] + event[begin + size :]


def inner_cells(**cells: Any) -> Change:
    """Replace cells of a Proof before it is signed."""

    def change(inner: bytes) -> bytes:
        new = {**cbor.decode_payload(inner[4:]), **{CELLS[k]: v for k, v in cells.items()}}
        new = {key: value for key, value in new.items() if value is not None}
        return inner[:4] + cbor.encode_payload(new)

    return change
