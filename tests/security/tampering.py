"""Changes that a middle node makes to events: event by event, and cell by cell.

All changes are possible with bytes that everyone on the network can see, without any key. Each
change has a name, which a failing test shows.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode
from parley._node.protocol.codes import (
    CALL,
    CLOSE,
    CONNECTION,
    DATA,
    PING,
    PROOF,
    REJECT,
    REPLY,
    RETRY,
    SEAL,
    SIM,
    STREAM,
    CloseCode,
)
from parley._node.protocol.codes import HELLO as HELLO_EVENT
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake_messages import PARAMETER_KEYS
from parley._node.protocol.limits import FRAME_HEADER_SIZE
from tests.node.protocol.pair import Pair, raw_frame
from tests.security.changed_bytes import Change, at, behind_frame, silence_after
from tests.security.middle import Instead, Passing, Tamper
from tests.security.shapes import (
    FROM_INITIATOR,
    HELLO,
    INITIATORS_PROOF,
    RESPONDERS_PROOF,
    Shape,
    identity,
    named_frames,
)
from tests.security.shapes import (
    REPLY as REPLY_NAME,
)

_HEAD_SIZE: Final = FRAME_HEADER_SIZE + 8  # of a raw event's frame

# Event by event.


def lost(name: str) -> Iterator[tuple[str, Tamper]]:
    """Drop it: only this event, or everything from it on."""
    yield "dropped", at(name, lambda _: b"")
    yield "dropped with all that follows", silence_after(name, 0)


def repeated(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """Deliver it twice: immediately, or before or after each later event."""
    yield "twice", at(name, lambda data: data + data)
    yield "thrice", at(name, lambda data: data * 3)
    later = shape.events[shape.events.index(name) + 1 :]
    for other in later:
        for before in (True, False):
            word = "before" if before else "after"
            yield f"again {word} {other}", _again(name, other, before=before)


def _again(name: str, other: str, *, before: bool) -> Tamper:
    same_way = (name in FROM_INITIATOR) == (other in FROM_INITIATOR)

    def tamper(passing: Passing) -> Instead:
        if passing.name != other:
            return Instead(passing.frame)
        again = passing.earlier[name]
        if not same_way:
            return Instead(passing.frame, again)
        return Instead(again + passing.frame if before else passing.frame + again)

    return tamper


def reordered(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """Swap it with each later event in the same direction."""
    later = shape.events[shape.events.index(name) + 1 :]
    for other in (*later, "later"):
        if other == "later" or (name in FROM_INITIATOR) == (other in FROM_INITIATOR):
            yield f"behind {other}", _behind(name, other)


def _behind(name: str, other: str) -> Tamper:
    done = False

    def tamper(passing: Passing) -> Instead:
        nonlocal done
        if passing.name == name:
            return Instead(b"")
        if passing.name == other and not done:
            done = True
            return Instead(passing.frame + passing.earlier[name])
        return Instead(passing.frame)

    return tamper


def reflected(name: str) -> Iterator[tuple[str, Tamper]]:
    """Return it to its sender: instead of delivering it, or additionally."""

    def back_only(passing: Passing) -> Instead:
        if passing.name == name:
            return Instead(b"", passing.frame)
        return Instead(passing.frame)

    def both(passing: Passing) -> Instead:
        return Instead(passing.frame, passing.frame if passing.name == name else b"")

    yield "sent back", back_only
    yield "passed on and sent back", both


def inserted(shape: Shape, name: str, others: Mapping[str, bytes]) -> Iterator[tuple[str, Tamper]]:
    """Insert another frame before it, after it, or in its place."""
    for what, other in others.items():
        yield f"{what} before it", at(name, _before(other))
        yield f"{what} behind it", at(name, behind_frame(other))
        if other != shape.frames()[name]:  # every Retry for the same kex is identical
            yield f"{what} in its place", at(name, _instead(other))


def _before(other: bytes) -> Change:
    return lambda data: other + data


def _instead(other: bytes) -> Change:
    return lambda _: other


REJECTS: Final = {
    f"Reject {code}": raw_frame(REJECT, {keys.CODE: code, keys.TEXT: "so it is"})
    for code in (CloseCode.NORMAL, CloseCode.AUTHENTICATION_FAILED, 64, 2**32 - 1)
}


def _plain(*, category: int = CONNECTION, subcategory: int, cells: Mapping[int, Value]) -> bytes:
    framed = raw_frame(subcategory, cells)
    return framed[: _HEAD_SIZE - 2] + bytes((category,)) + framed[_HEAD_SIZE - 1 :]


_PLAINTEXT: Final[Mapping[int, Value]] = {
    keys.VERSION: 1,
    keys.RANDOM: bytes(32),
    keys.ROLE: "peer",
    keys.PLAINTEXT: True,
}
UNKNOWN: Final[Mapping[str, bytes]] = {
    "an empty event": frame(b""),
    "a short event": frame(bytes(8)),
    "zeros": frame(bytes(60)),
    "many zeros": frame(bytes(300)),
    "an unknown event": raw_frame(13, {}),
    "event 1/255": raw_frame(255, {}),
    "event 0/0": frame(bytes(9)),
    "a raw Proof": raw_frame(PROOF, {keys.IDENTITY_KEYS: []}),
    "a raw Ping": raw_frame(PING, {}, async_id=1),
    "a raw Seal": raw_frame(SEAL, {}),
    "a raw Close": raw_frame(CLOSE, {keys.CODE: CloseCode.NORMAL}),
    "raw Data": _plain(category=STREAM, subcategory=DATA, cells={}),
    "a raw Call": _plain(category=SIM, subcategory=CALL, cells={keys.TOPIC: "t"}),
    "a raw event of the application": _plain(category=64, subcategory=1, cells={}),
    "a Retry": raw_frame(RETRY, {keys.SUITE: {1: "x25519"}}),
    "another Retry": raw_frame(RETRY, {keys.SUITE: {1: "x25519-mlkem768"}}),
    "an unencrypted Hello": raw_frame(HELLO_EVENT, _PLAINTEXT),
    "an unencrypted Reply": raw_frame(REPLY, _PLAINTEXT),
}


def foreign(shape: Shape) -> dict[str, bytes]:
    """Return the events of another session of the two, and of sessions of each with a third
    node.
    """
    found = {}
    for whose, changed in (("old", ""), ("a strange initiator's", "initiator"),
                           ("a strange responder's", "responder")):  # fmt: skip
        configs = [
            shape.config(who, identity=identity("stranger", *_signing(shape)))
            if who == changed
            else shape.config(who)
            for who in ("initiator", "responder")
        ]
        pair = Pair(*configs)
        pair.pump()
        for name, framed in named_frames(shape, pair).items():
            found[f"{whose} {name}"] = framed
    return found


def _signing(shape: Shape) -> tuple[str, ...]:
    return shape.config("initiator").identity.algorithms


# Cell by cell: well-formed changes of the content.


def recelled(change: Callable[[dict[int, Any]], object]) -> Change:
    """Return a raw event with its cells changed and encoded again."""

    def changed(data: bytes) -> bytes:
        cells = dict(decode(data[_HEAD_SIZE:], keep_noise=True))
        change(cells)
        return frame(data[FRAME_HEADER_SIZE:_HEAD_SIZE] + encode(cells))

    return changed


def _put(more: Mapping[int, Value]) -> Callable[[dict[int, Any]], object]:
    return lambda cells: cells.update(more)


def _taken(key: int) -> Callable[[dict[int, Any]], object]:
    return lambda cells: cells.pop(key)


def reworded(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """Remove, change or add cells of a raw event, as the encoding rules allow."""
    if name in (RESPONDERS_PROOF, INITIATORS_PROOF):
        return
    sample = shape.frames()[name]
    cells = dict(decode(sample[_HEAD_SIZE:], keep_noise=True))
    for key in cells:
        yield f"cell {key} taken away", at(name, recelled(_taken(key)))
    for what, more in _ADDED.items():
        if any(cells.get(key) != value for key, value in more.items()):
            yield what, at(name, recelled(_put(more)))
    for key, inner in ((keys.OFFER, _fewer), (keys.SUITE, _other)):
        chosen = cells.get(key)
        if isinstance(chosen, dict):
            for what, value in inner(chosen):
                yield what, at(name, recelled(_put({key: value})))


_ADDED: Final[Mapping[str, Mapping[int, Value]]] = {
    "noise added": {keys.NOISE: b"x"},
    "an unknown cell added": {300: None},
    "a cell of the base protocol added": {keys.LABEL: "x"},
    "other random": {keys.RANDOM: bytes(32)},
    "another role": {keys.ROLE: "server"},
    "other seal_events": {keys.SEAL_EVENTS: 1},
    "another seal_delay_ms": {keys.SEAL_DELAY_MS: 60_000},
    "another max_payload": {keys.MAX_PAYLOAD: 1_024},
    "another stream_window": {keys.STREAM_WINDOW: 1_024},
    "other max_streams": {keys.MAX_STREAMS: 0},
    "a limit that is the default": {keys.MAX_STREAMS: 1_024},
    "a network mac": {keys.NETWORK_MAC: bytes(32)},
    "plaintext": {keys.PLAINTEXT: True},
    "no plaintext, in so many words": {keys.PLAINTEXT: False},
}


def _fewer(offer: dict[Any, Any]) -> Iterator[tuple[str, Value]]:
    """Return an offer without the first name of a parameter, with it moved last, or with a name
    added.
    """
    for number, parameter in PARAMETER_KEYS.items():
        names = offer[number]
        yield f"a {parameter} offered more", {**offer, number: [*names, "rot13"]}
        if len(names) > 1:
            yield f"the best {parameter} no more offered", {**offer, number: names[1:]}
            yield f"the best {parameter} offered last", {**offer, number: names[::-1]}


def _other(suite: dict[Any, Any]) -> Iterator[tuple[str, Value]]:
    """Return a suite with another name for a parameter."""
    others = {
        "x25519": "x25519-mlkem768",
        "x25519-mlkem768": "x25519",
        "ed25519": "ecdsa-p256",
        "ecdsa-p256": "ed25519",
        "ml-dsa-65": "ed25519",
        "blake3": "sha256",
        "sha256": "sha512",
        "blake2b-256": "sha256",
        "sha512": "sha256",
        "aes-256-gcm": "xchacha20-poly1305",
        "chacha20-poly1305": "aes-256-gcm",
        "xchacha20-poly1305": "aes-256-gcm",
        "chain": "each",
        "each": "chain",
    }
    for number, name in suite.items():
        yield f"{others[name]} for {name}", {**suite, number: others[name]}


def in_both(*cells: Mapping[int, Value]) -> Tamper:
    """Put the same cells into Hello and Reply, as if both sides had sent them."""

    def tamper(passing: Passing) -> Instead:
        if passing.name not in (HELLO, REPLY_NAME):
            return Instead(passing.frame)
        changed = passing.frame
        for more in cells:
            changed = recelled(_put(more))(changed)
        return Instead(changed)

    return tamper
