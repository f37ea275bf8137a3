"""The seeds of the dialects' targets, from their vectors and additional scripts.

Seeds contain the vectors' messages unchanged; the other seeds lead into states. `seeds.py` finds
them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tests.fuzz.line import Event
from tests.fuzz.script import Kind, Step, serialise
from tests.reference.dialects.named import FORMATS, NamedEvent
from tests.reference.dialects.relay import RelayMessage
from tests.vectors.load import read, unhex

Seeds = Iterator[bytes]
# Longer vectors are about lengths alone.
LONGEST: Final = 600
# So many messages of vectors make one script.
TOGETHER: Final = 4

ACT, WAIT, BLOCK, END, CLOSE, ABORT = Event
# What the application does, by its number in `SimProtoSide` and `NamedSide`.
CALL, SUBSCRIBE, LEAVE, GIVE_UP, PUBLISH, READ, ANSWER, PING = range(8)
EMIT, ASK, REPLY, FINISH, FAIL, RELEASE, FORGET, TAKE = range(8)


def simproto() -> Seeds:
    """Each message and exchange of the vectors; both sides at work."""
    yield from _messages("simproto", b"\0\0")
    for vector in _vectors("simproto", "exchange"):
        yield b"\0\1" + serialise(_raw(step) for step in _of_clients(vector))
    ask, answer = _say(0, topic=0, data=b"data"), _say(4)
    subscribe, leave, note = _say(1, topic=3), _say(2, topic=3), _say(3, topic=3, data=b"note")
    waiting = [_say(0, dialog, topic=1, data=bytes(300)) for dialog in range(6)]
    published = _act(PUBLISH, data=b"note", count=5)
    one = "0100000000000000"
    begun, more = _raw({"hex": "00" + one + "ff00000000000000" + "00" * 9}), _raw({"hex": "00"})
    empty = _raw({"hex": "01" + one + "00" * 8})
    scripts: tuple[Iterable[Step], ...] = (
        (_act(CALL, data=b"data"), answer, ask, _act(PING), _say(6), _say(5, 9, data=b"echo")),
        (subscribe, published, answer, answer, leave, published),
        (subscribe, published, _say(4, code=2), published, leave),
        (_act(SUBSCRIBE), answer, note, note, note, _act(READ), _act(LEAVE), answer, note),
        (_act(SUBSCRIBE), answer, *[_say(3, n, topic=3, data=bytes(99)) for n in range(9)]),
        (_act(SUBSCRIBE), answer, _say(3, topic=3, data=bytes(250)), note, _happen(WAIT, 40)),
        (*waiting, _act(ANSWER), _act(ANSWER, 1), _happen(WAIT, 20)),
        (_happen(BLOCK), *waiting, ask, ask, ask, _happen(BLOCK)),
        (_happen(BLOCK), *[_say(5, n) for n in range(60)]),
        (_act(CALL), _act(GIVE_UP), answer, _act(10, 8), _happen(WAIT, 10), answer),
        (_act(CALL), _happen(WAIT, 200)),
        (_happen(WAIT, 200), _happen(WAIT, 200)),
        (subscribe, published, _act(9), answer, answer, _happen(CLOSE), _happen(WAIT, 40)),
        (_act(11), *[_act(CALL)] * 5, _act(11, 1), answer, answer),
        (ask, _happen(ABORT), ask),
        (_act(CALL), _happen(END), ask),
        (waiting[0], _act(ANSWER, data=bytes(600)), _act(CALL), empty),
        (_happen(BLOCK), Step(Kind.RAW, payload=unhex("02" + "00" * 16) * 70)),
        (begun, _happen(WAIT, 61), more, _happen(WAIT, 30), more, _happen(WAIT, 30), more),
        (_say(1, topic=5), *[_act(PUBLISH, 2, data=bytes(99), count=7)] * 9, answer),
    )
    for limits in range(3):
        for script in scripts:
            yield bytes([limits, 2]) + serialise(script)


def named() -> Seeds:
    """Each event of the vectors, in its flavour; both sides at work."""
    yield from _messages("named_dialect", b"\0\0", flavour="plain")
    yield from _messages("named_dialect", b"\1\0", flavour="typed")
    ask, reply = _say(0, data=b"data"), _say(1, data=b"data")
    error = Step(Kind.SEALED, 0, 3, 1, 3, b"text")
    end = _say(1, topic=2, code=2, data=b"last")
    big = [_say(0, n, data=bytes(400)) for n in range(5)]
    scripts: tuple[Iterable[Step], ...] = (
        (ask, _act(REPLY, data=b"one"), _act(FINISH, data=b"last"), ask, _act(FAIL)),
        (_act(ASK), reply, reply, _act(TAKE), end, reply),
        (_act(ASK), error, reply, error),
        (_act(ASK, 9), _happen(WAIT, 20), reply),
        (_act(ASK), reply, _act(FORGET), reply),
        (_act(ASK), *[_say(1, data=bytes(300))] * 6),
        (*big, _act(RELEASE), ask, _act(FINISH), _happen(WAIT, 90)),
        (_happen(BLOCK), *[_act(EMIT, data=bytes(400))] * 4, ask, _happen(BLOCK)),
        (_act(ASK), _act(ASK), _act(ASK), _act(ASK), _happen(CLOSE), reply),
        (ask, _happen(ABORT), _act(FINISH)),
        (ask, _happen(END), _act(RELEASE)),
        (_act(ASK), reply, reply, reply, _act(8), reply),
        (Step(Kind.RAW, payload=NamedEvent(1, "x").raw * 100), _act(RELEASE), _act(FINISH)),
    )
    for setting in range(4):
        for script in scripts:
            yield bytes([setting, 0]) + serialise(script)


def relay() -> Seeds:
    """Yield the exchanges of the vectors by sender, floods, slow readers, and the bridge."""
    clients = "abc"
    for vector in _vectors("event_relay", "exchange"):
        steps = [_raw(step, clients.index(step["from"])) for step in _of_clients(vector)]
        for piece in range(2):
            yield bytes([0, piece]) + serialise(steps)
    enter = [_say(0, client, topic=client) for client in range(3)]
    everyone = [_say(3, client, code=1, data=b"to all") for client in range(3)]
    direct = _say(1, code=1, data=b"direct")
    much = _say(1, code=1, data=bytes(60))
    short = Step(Kind.RAW, payload=bytes(400))
    missing = (b"nobody is called", b"neither is there")
    again = RelayMessage(b"\2" * 16, b"\1" * 16, b"again").raw * 5
    nowhere = b"".join(RelayMessage(target, b"\1" * 16, b"x").raw for target in missing)
    scripts: tuple[Iterable[Step], ...] = (
        (*enter, *everyone, direct, _say(5, code=1), _say(4, code=1)),
        (*enter, _say(1, code=0), _say(1, 1, topic=2, code=0, data=b"forged")),
        (*enter, _happen(BLOCK, client=1), *[much] * 20, _happen(BLOCK, client=1)),
        (*enter, short, direct, Step(Kind.RAW, payload=bytes(3)), direct),
        (*enter, _act(0), _say(5, code=1), *everyone, _act(1, data=b"bridged"), _act(0)),
        (*enter, _act(0), _say(3, code=1, data=bytes(200)), much, much, _say(6, code=1)),
        (*enter, Step(Kind.RAW, payload=nowhere), direct),
        (*enter, Step(Kind.RAW, payload=again), direct),
        (*enter[:2], _happen(WAIT, 20), _happen(WAIT, 100)),
        (*enter, Step(Kind.SEALED, subcategory=1), Step(Kind.SEALED, 1), direct),
        (*enter, _happen(ABORT, 1), _happen(END, client=1), _happen(CLOSE, client=2), direct),
        (_say(0, topic=3), _say(0, 1, topic=4), _say(0, 2, topic=5), _act(0)),
    )
    yield b"\0\0" + serialise((*enter, Step(Kind.RAW, payload=bytes(4 * 1_005)), direct))
    for setting, piece in ((0, 3), (1, 0), (129, 2)):
        for script in scripts:
            yield bytes([setting, piece]) + serialise(script)


def relay_client() -> Seeds:
    """The messages and errors of the vectors, as a client gets them."""
    yield from _messages("event_relay", b"\0\0")
    message, fault = _say(0, topic=0, data=b"data"), Step(Kind.SEALED, 0, 5, payload=b"text")
    scripts: tuple[Iterable[Step], ...] = (
        (message, _say(1), _say(2), fault, _act(0), Step(Kind.SEALED, 0, 2)),
        (_act(1, data=b"one"), _act(1, 1), _act(1, 2, data=bytes(99)), _happen(CLOSE)),
        (*[message] * 9, _act(0), message, _act(0), _act(0)),
        (_happen(WAIT, 100), message),
        (message, _happen(ABORT), message),
        (_happen(BLOCK), _act(1, data=b"one"), _happen(END)),
    )
    for setting in range(2):
        for script in scripts:
            yield bytes([setting, 2]) + serialise(script)


def formats() -> Seeds:
    """Yield payloads of each format: the vectors' payloads and LBM payloads."""
    readers = [*FORMATS, 4]  # by their order in the target
    for vector in _vectors("named_dialect", "formatted"):
        data = unhex(vector["hex"])
        yield bytes([len(readers)]) + data
        if data and data[0] in FORMATS:
            yield bytes([readers.index(data[0])]) + data[1:]
    for offset, kind in ((1, "tandem"), (2, "error")):
        for vector in _vectors("named_dialect", kind):
            yield bytes([len(readers) + offset]) + unhex(vector["hex"])
    for vector in read("lbm")["vectors"]:
        payload = unhex(vector.get("input", ""))
        if 0 < len(payload) <= 24 and "expected" in vector and "limits" not in vector:
            yield bytes([readers.index(17)]) + payload
    for cells in ("a0", "a11601", "a2164161184105", "a21641611803", "a21616181810", "a1181810"):
        yield bytes([len(readers) + 3]) + unhex(cells)
    for text in ('[1,-2.5e3,"\\ud83d\\ude00",null,true]', '{"a":{"b":[]}}', '"\\ud800"', "NaN"):
        yield bytes([readers.index(3)]) + text.encode()
    for packed in ("93c0c3cb3ff8000000000000", "81a161c403010203", "d6ff00000000", "8190c0"):
        yield bytes([readers.index(0)]) + unhex(packed)


SEEDS: Final[Mapping[str, Callable[[], Seeds]]] = {
    "simproto": simproto,
    "named": named,
    "relay": relay,
    "relay_client": relay_client,
    "formats": formats,
}


def _vectors(name: str, kind: str) -> Iterator[Mapping[str, Any]]:
    return (vector for vector in read(name)["vectors"] if vector["kind"] == kind)


def _messages(name: str, setting: bytes, **wanted: str) -> Seeds:
    """What a vector has on the wire: good messages together, each bad one after another."""
    good: list[Step] = []
    for vector in read(name)["vectors"]:
        if any(vector.get(key) != value for key, value in wanted.items()):
            continue
        if "hex" not in vector or not 0 < len(unhex(vector["hex"])) <= LONGEST:
            continue
        if "fails" not in vector:
            good.append(_raw(vector))
        elif vector["fails"] != "incomplete":
            yield setting + serialise([_raw(vector)])
    for start in range(0, len(good), TOGETHER):
        yield setting + serialise(good[start : start + TOGETHER])


def _of_clients(vector: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for step in vector["steps"]:
        if step.get("from") not in (None, "server") and "hex" in step:
            yield step


def _raw(vector: Mapping[str, Any], client: int = 0) -> Step:
    return Step(Kind.RAW, client, payload=unhex(vector["hex"]))


def _say(what: int, number: int = 0, *, topic: int = 0, code: int = 0, data: bytes = b"") -> Step:
    """Return a valid message of the peer, with the target's numbers."""
    return Step(Kind.EVENT, number, code, what, topic, data)


def _act(what: int, number: int = 0, *, data: bytes = b"", count: int = 0) -> Step:
    return Step(Kind.ACTION, number, count, ACT, what, data)


def _happen(event: Event, how: int = 0, *, client: int = 0) -> Step:
    return Step(Kind.ACTION, client, 0, event, how)
