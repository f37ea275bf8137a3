"""Vectors for resuming (section 17): keys, Resume and Resumed, decisions of both sides, positions.

Each vector is one value or one decision; the states are those of Resumption.
"""

from typing import Any

from tests.reference import cbor, handshake, resume
from tests.reference.establish import first_event
from tests.reference.handshake import Config
from tests.reference.identity import Identity
from tests.reference.primitives import HASH_SIZES, derive, digest
from tests.reference.recorded import seed
from tests.reference.resume import Refused, Resumption, UnknownSession
from tests.reference.wire import CELLS, TYPES, Event, Violation, parse_raw

Vector = dict[str, Any]
NETWORK_KEY = bytes(range(32))
EXPORTERS = {name: digest(name, b"exporter") for name in HASH_SIZES}
SESSION = seed("session id")[:32]
KEYS = {
    name: resume.resume_key(name, EXPORTERS[name], SESSION, size)
    for name, size in HASH_SIZES.items()
}
STATE = {"count": 0, "attempt": 0, "told": 0, "sent": 5_000, "received": 1_000}


def resume_vectors() -> dict[str, Any]:
    """resume.json."""
    return {
        "about": "Resuming. `key` is K; `count` is n of the responder or m of the initiator, "
        "`attempt` the highest accepted or the last made, `told` and `sent` positions of one's "
        "own direction, `received` that of the other.",
        "section": "17",
        "vectors": [
            *_key_vectors(),
            *_event_vectors(),
            *_agreement_vectors(),
            *_stranger_vectors(),
            *_accept_vectors(),
            *_complete_vectors(),
            *_position_vectors(),
        ],
    }


def _key_vectors() -> list[Vector]:
    vectors: list[Vector] = []
    for name, size in HASH_SIZES.items():
        key = KEYS[name]
        given = {
            "kind": "key",
            "hash": name,
            "exporter": EXPORTERS[name].hex(),
            "session_id": SESSION.hex(),
        }
        counts = (0, 1, 2**32 - 1)
        tags = {str(count): resume.tag(name, key, count).hex() for count in counts}
        expected = {"key": key.hex(), "tags": tags}
        vectors.append({"name": f"K and tags, {name}", **given, "expected": expected})
        wrong = {
            "K of the session id alone": resume.resume_key(name, SESSION, b"", size),
            "K under another label": derive(name, EXPORTERS[name], "resume tag", SESSION, size),
            "K of 32 bytes" if size != 32 else "K of 16 bytes": key[: size // 2],
        }
        for title, claimed in wrong.items():
            vectors.append(
                {
                    "name": f"{title}, {name}",
                    **given,
                    "claimed": claimed.hex(),
                    "fails": "mismatch",
                    "why": "not Label(exporter, 'resume', session id, h)",
                }
            )
    return vectors


def _event_vectors() -> list[Vector]:
    vectors: list[Vector] = []
    cases = [
        ("sha256", 0, 1, 0, None),
        ("sha256", 0, 1, 1_000, NETWORK_KEY),
        ("sha512", 3, 70_000, 2**32, None),
        ("blake2b-256", 2**32 - 1, 2**32 - 1, 2**64 - 1, NETWORK_KEY),
    ]
    for name, count, attempt, received, network_key in cases:
        key = KEYS[name]
        macs = [resume.mac(name, key, side, count, attempt, received) for side in (0, 1)]
        tagged = resume.tag(name, key, count)
        asked = resume.resume_event(tagged, attempt, received, macs[0], network_key)
        vectors.append(
            {
                "name": f"Resume and Resumed, {name}, m {count}, {received} received",
                "kind": "events",
                "hash": name,
                "key": key.hex(),
                "count": count,
                "attempt": attempt,
                "received": str(received),
                "network_key": network_key and network_key.hex(),
                "expected": {
                    "mac_inputs": [
                        resume.mac_input(side, count, attempt, received).hex() for side in (0, 1)
                    ],
                    "resume": asked.hex(),
                    "resumed": resume.resumed_event(attempt, received, macs[1]).hex(),
                },
            }
        )
    return vectors


def _agreement_vectors() -> list[Vector]:
    cases: list[tuple[int, int | None, int]] = [
        (30_000, 30_000, 30_000),
        (30_000, 1_500, 1_500),
        (1_500, 30_000, 1_500),
        (30_000, None, 0),
        (0, 30_000, 0),
        (30_000, 0, 0),
        (600_000, 600_001, 600_000),
        (600_000, 2**64 - 1, 600_000),
    ]
    return [
        {
            "name": f"resume ms {ours} and {theirs}",
            "kind": "agreement",
            "ours": ours,
            "theirs": None if theirs is None else str(theirs),
            "expected": expected,
        }
        for ours, theirs, expected in cases
        if handshake.agreed_resume(
            Config(_IDENTITY, resume_ms=ours),
            {} if theirs is None else {CELLS["resume_ms"]: theirs},
        )
        == expected
    ]


_IDENTITY = Identity.from_seeds(("ed25519", seed("resume ed25519")))


def _changed(event: bytes, **cells: Any) -> bytes:
    """Return a Resume or Resumed with other cells; None removes one, and the mac isn't
    recomputed.
    """
    raw = parse_raw(event)
    content = raw.cells() | {CELLS[name]: value for name, value in cells.items()}
    content = {key: value for key, value in content.items() if value is not None}
    return Event(raw.stream, raw.async_id, *raw.type, cbor.encode_payload(content)).raw


def _stranger_vectors() -> list[Vector]:
    """Return the answer of a node without any session."""
    good = _resumption({}).ask()
    keyed = _resumption({}).ask(NETWORK_KEY)
    code = parse_raw(keyed).cells()[CELLS["mac"]]
    payload = good[8:]
    cases: dict[str, tuple[bytes, bytes | None]] = {
        "a Resume for no session": (good, None),
        "a Resume for no session, with a network mac that is not needed": (keyed, None),
        "a Resume for no session, in the network": (keyed, NETWORK_KEY),
        "a mac of no hash's length": (_changed(good, mac_of_resume=bytes(7)), None),
        "a mac longer than any hash": (_changed(good, mac_of_resume=bytes(65)), None),
        "an unknown cell": (_changed(good, rekey=7), None),
        "no tag": (_changed(good, tag=None), None),
        "a tag of 15 bytes": (_changed(good, tag=bytes(15)), None),
        "a tag of 17 bytes": (_changed(good, tag=bytes(17)), None),
        "a tag that is text": (_changed(good, tag="x" * 16), None),
        "no attempt": (_changed(good, attempt=None), None),
        "attempt 0": (_changed(good, attempt=0), None),
        "attempt 2^32": (_changed(good, attempt=2**32), None),
        "no received": (_changed(good, received=None), None),
        "received that is negative": (_changed(good, received=-1), None),
        "no mac": (_changed(good, mac_of_resume=None), None),
        "a mac that is text": (_changed(good, mac_of_resume="x"), None),
        "Resume on stream 1": (Event(1, 0, *TYPES["Resume"], payload).raw, None),
        "Resume with an async id": (Event(0, 1, *TYPES["Resume"], payload).raw, None),
        "Resumed in place of Resume": (Event(0, 0, *TYPES["Resumed"], payload).raw, None),
        "Received in place of Resume": (Event(0, 0, *TYPES["Received"], payload).raw, None),
        "Resume without a payload": (Event(0, 0, *TYPES["Resume"]).raw, None),
        "Resume with a trailing byte": (good + b"\x00", None),
        "network key: no network mac": (good, NETWORK_KEY),
        "network key: a changed network mac": (
            _changed(keyed, mac=bytes([code[0] ^ 1]) + code[1:]),
            NETWORK_KEY,
        ),
        "network key: the mac of a Hello": (
            _changed(good, mac=handshake.network_mac(NETWORK_KEY, parse_raw(good).cells())),
            NETWORK_KEY,
        ),
        "network key: a mac that covers another attempt": (_changed(keyed, attempt=9), NETWORK_KEY),
        "network key: malformed, with a right mac": (_with_mac(attempt=0), NETWORK_KEY),
    }
    vectors: list[Vector] = []
    for name, (event, network_key) in cases.items():
        config = Config(_IDENTITY, network_key=network_key)
        vector: Vector = {
            "name": name,
            "kind": "stranger",
            "network_key": network_key and network_key.hex(),
            "input": event.hex(),
        }
        reject = True
        try:
            handshake.check_network_key(config, event)
        except Violation as violation:
            reject, found = False, violation
        else:
            try:
                first_event(event)
                raise AssertionError(f"{name}: a stranger's Resume is never taken")
            except Violation as violation:
                found = violation
        vectors.append(vector | {"fails": found.code, "reject": reject, "why": found.why or name})
    return vectors


def _with_mac(**cells: Any) -> bytes:
    event = _changed(_resumption({}).ask(), **cells)
    label = handshake.NETWORK_LABELS[TYPES["Resume"]]
    return _changed(event, mac=handshake.network_mac(NETWORK_KEY, parse_raw(event).cells(), label))


def _resumption(state: dict[str, int], name: str = "sha256") -> Resumption:
    state = STATE | state
    made = Resumption(name, KEYS[name])
    made.count, made.attempt, made.received = state["count"], state["attempt"], state["received"]
    made.kept.sent = made.kept.told = state["told"]
    made.kept.add(bytes(state["sent"] - state["told"]))
    return made


def _asked(count: int, attempt: int, received: int, **more: Any) -> bytes:
    """A right Resume; `side` and `key` make its mac wrong."""
    key = more.get("key", KEYS["sha256"])
    code = resume.mac("sha256", key, more.get("side", 0), count, attempt, received)
    return resume.resume_event(resume.tag("sha256", KEYS["sha256"], count), attempt, received, code)


def _accept_vectors() -> list[Vector]:
    """What a responder makes of a Resume."""
    other = digest("sha256", b"another session")
    good = _asked(0, 1, 0)
    cases: dict[str, tuple[dict[str, int], bytes]] = {
        "the first Resume": ({}, good),
        "the third attempt is the first that comes": ({}, _asked(0, 3, 0)),
        "all that was sent was received": ({}, _asked(0, 1, 5_000)),
        "what was told, again": ({"told": 2_000}, _asked(0, 1, 2_000)),
        "the next one": ({"count": 1, "attempt": 4}, _asked(1, 5, 10)),
        "Resumed was lost": ({"count": 1, "attempt": 4}, _asked(0, 5, 10)),
        "Resumed was lost twice": ({"count": 1, "attempt": 5}, _asked(0, 6, 10)),
        "a position inside a frame": ({}, _asked(0, 1, 4_999)),
        "noise and unknown cells": ({}, _changed(good, noise=bytes(5), rekey=1)),
        "the same Resume again": ({"count": 1, "attempt": 1}, good),
        "an attempt below the highest": ({"count": 1, "attempt": 4}, _asked(1, 3, 10)),
        "the highest attempt again": ({"count": 1, "attempt": 4}, _asked(1, 4, 10)),
        "a tag of the next count": ({}, _asked(1, 1, 0)),
        "a tag of two counts ago": ({"count": 2, "attempt": 4}, _asked(0, 5, 0)),
        "a tag of another session": ({}, _changed(good, tag=bytes(16))),
        "the mac of a Resumed": ({}, _asked(0, 1, 0, side=1)),
        "the mac of another K": ({}, _asked(0, 1, 0, key=other)),
        "a mac that covers another attempt": ({}, _changed(good, attempt=2)),
        "a mac that covers another position": ({}, _changed(good, received=1)),
        "the mac of the count before": (
            {"count": 1, "attempt": 1},
            _changed(_asked(0, 2, 0), tag=resume.tag("sha256", KEYS["sha256"], 1)),
        ),
        "a cut mac": ({}, _changed(good, mac_of_resume=bytes(31))),
        "a mac with a byte more": ({}, _changed(good, mac_of_resume=bytes(33))),
        "less than what was told": ({"told": 2_000}, _asked(0, 1, 1_999)),
        "more than what was sent": ({}, _asked(0, 1, 5_001)),
        "far more than what was sent": ({}, _asked(0, 1, 2**64 - 1)),
        "a wrong mac and a wrong position": ({}, _asked(0, 1, 5_001, key=other)),
    }
    vectors: list[Vector] = []
    for name, (state, event) in cases.items():
        vector = _decision(name, "accept", state, event)
        resumption = _resumption(state)
        try:
            resumed = resumption.answer(event)
        except UnknownSession as unknown:
            vector |= {"fails": "unknown-session", "ends": unknown.ends, "why": str(unknown)}
        else:
            vector["expected"] = {
                "resumed": resumed.hex(),
                "count": resumption.count,
                "tags": [tagged.hex() for tagged in resumption.tags()],
                "told": resumption.kept.told,
            }
        vectors.append(vector)
    return vectors


def _answered(count: int, attempt: int, received: int, side: int = 1) -> bytes:
    code = resume.mac("sha256", KEYS["sha256"], side, count, attempt, received)
    return resume.resumed_event(attempt, received, code)


def _complete_vectors() -> list[Vector]:
    """What an initiator makes of a Resumed; it has made `attempt` attempts."""
    first = {"attempt": 1}
    good = _answered(0, 1, 0)
    cases: dict[str, tuple[dict[str, int], bytes]] = {
        "the first Resumed": (first, good),
        "Resumed of the third attempt": ({"attempt": 3}, _answered(0, 3, 5_000)),
        "Resumed of a later resumption": ({"count": 7, "attempt": 9}, _answered(7, 9, 10)),
        "Resumed with noise": (first, _changed(good, noise=bytes(3))),
        "Resumed of an earlier attempt": ({"attempt": 2}, good),
        "Resumed of an earlier resumption": ({"count": 1, "attempt": 1}, good),
        "the mac of the Resume itself (reflection)": (first, _answered(0, 1, 0, side=0)),
        "a Resumed whose mac covers another position": (first, _changed(good, received=1)),
        "a Resumed with less than was told": ({"attempt": 1, "told": 10}, _answered(0, 1, 9)),
        "a Resumed with more than was sent": (first, _answered(0, 1, 5_001)),
        "a Resumed without its mac": (first, _changed(good, mac_of_resume=None)),
        "a Resume in place of Resumed": (first, _asked(0, 1, 0)),
        "a Hello in place of Resumed": (first, Event(0, 0, *TYPES["Hello"], good[8:]).raw),
        "Resumed on stream 1": (first, Event(1, 0, *TYPES["Resumed"], good[8:]).raw),
    }
    vectors: list[Vector] = []
    for name, (state, event) in cases.items():
        vector = _decision(name, "complete", state, event)
        resumption = _resumption(state)
        try:
            resumption.complete(event)
        except Refused as refused:
            vector |= {"fails": "refused", "why": str(refused)}
        else:
            vector["expected"] = {"count": resumption.count, "told": resumption.kept.told}
        vectors.append(vector)
    return vectors


def _decision(name: str, kind: str, state: dict[str, int], event: bytes) -> Vector:
    given = {"hash": "sha256", "key": KEYS["sha256"].hex(), **STATE, **state}
    return {"name": name, "kind": kind, **given, "input": event.hex()}


def _position_vectors() -> list[Vector]:
    """Return cases of Received after a Resume or Resumed: [label, position], of 5,000 bytes
    sent.
    """
    cases: dict[str, list[tuple[str, int]]] = {
        "Received, three times": [("received", 0), ("received", 10), ("received", 5_000)],
        "Received that tells the same": [("received", 10), ("received", 10)],
        "a Received that was sent again tells less than Resumed": [
            ("resumed", 66),
            ("received", 0),
            ("received", 66),
        ],
        "Received between the last one and what Resume told": [
            ("received", 10),
            ("resumed", 100),
            ("received", 50),
            ("received", 200),
        ],
        "Received that falls": [("received", 10), ("received", 9)],
        "Received beyond what was sent": [("received", 5_001)],
        "Received that falls, after a Resume": [
            ("received", 10),
            ("resumed", 100),
            ("received", 9),
        ],
        "Received beyond what was sent, after a Resume": [("resumed", 100), ("received", 6_000)],
    }
    vectors: list[Vector] = []
    for name, steps in cases.items():
        resumption = _resumption({"told": 0})
        vector: Vector = {"name": name, "kind": "positions", "sent": 5_000, "steps": steps}
        try:
            for what, position in steps:
                if what == "received":
                    resumption.told(position)
                else:
                    resumption.kept.release(position)
        except Violation as violation:
            vector |= {"fails": violation.code, "why": violation.why}
        else:
            vector["expected"] = resumption.kept.told
        vectors.append(vector)
    return vectors
