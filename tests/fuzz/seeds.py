"""The seeds of the corpus, made from the test vectors and a few scripts of our own.

`python -m tests.fuzz.seeds` writes the files `seed-*` of every target; with `--check` it
compares and ends with 1 where they differ. What the fuzzer found has other names.
"""

import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from parley._crypto.identity import NodeId
from parley._crypto.statements import Statement
from tests.fuzz import batch_seeds, dialect_seeds
from tests.fuzz.federation import (
    DIAL,
    ENVELOPE,
    EVENTS,
    LOGGING_IN,
    MAX_SIZE,
    NEIGHBOURS,
    SITUATIONS,
)
from tests.fuzz.meeting import THEIRS
from tests.fuzz.script import Kind, Step, serialise
from tests.fuzz.statement import CHAIN, FILE, ORIGIN, PROOF, STATEMENT
from tests.fuzz.targets import PLANTED
from tests.reference.journal import KINDS
from tests.reference.vectors_events import REQUIRED
from tests.reference.vectors_federation import NODES
from tests.reference.wire import TYPES, cells_payload, parse_raw
from tests.vectors.load import read, unhex

CORPUS: Final = Path(__file__).with_name("corpus")
HANDSHAKE_STATES: Final = 21
# Of these the one in which a responder has a network key, those in which an initiator has
# said Hello, and those in which it is about to.
NETWORK: Final = 10
DIALLING: Final = (3, 18, 19)
# Longer ones have a share of ML-KEM; the target makes those itself.
LONGEST_RAW: Final = 300
# The setting of both kinds of conversation in which limits are small and the peer has
# dialled, and the first stream that it opens then.
SMALL: Final = (2, 3)
# Conversations: words of `_vocabulary`, and numbers of what the application does.
SCRIPTS: Final[tuple[tuple[int | str, ...], ...]] = (
    (2, "open", "result", "note", "headed", "notes", 10, "asking", 3, "finish"),
    (1, "chunk", "chunk", 10, "result", 10),
    (0, "result", 0, 4, 0, "pause", "wait"),
    ("plain", "data", "ask", 10, 17, "answer", 17, "pause", "ask", 18, "finish", 8),
    ("plain", "ask", "forget", 17, 4, 9),
    ("plain", "much", "much", "much", 19, "grant", "much", "grant", "reset"),
    ("plain", "block", "much", "much", 19, "block", "data", "data", 9),
    ("subscribe", 5, 5, "leave", "finish"),
    ("subscribe", "block", *["publish"] * 6, "block", "grant", "grant", "pause"),
    ("subscribe", *["publish"] * 6, "reset"),
    ("call", 11, 11, "grant chunks", 11, "cancel", "emit", 12, 13, 19, 20),
    ("list", "silent", "list", "pause"),
    ("emit", "emit json", "emit there", "emit without a receiver", 23, 23, 11),
    ("emit", 23, "forget emit", 11, *["emit silently"] * 5, 11),
    (21, 22, "reply", "reply", 10, "end", "end"),
    (22, "reply", 24, "reply", 22, *["much reply"] * 3, 10, "error", 22, 4, "result", "wait"),
    (6, 7, 8, 9, 15, 16),
)
# Numbers of what happens in target `resume`, of each step's place by turns of either side.
COURSES: Final = (
    (0, 10, 0, 1, 2, 0, 10),
    (0, 0, 4, 2, 0, 4, 2, 10, 5, 2),
    (0, 1, 7, 7, 2, 5, 5, 6, 2, 10),
    (0, 0, 8, 2, 8, 8, 2, 0, 10, 6, 2),
    (0, 10, 1, 9, 2, 2),
    (0, 10, 0, 9, 1, 2, 5),
    (3, 2, 3, 3, 2, 0, 10),
    (0, 10, 2, 2, 2, 0, 4, 5, 2, 6, 2, 10),
)
PREFIX: Final = "seed-"
Seeds = Iterator[bytes]


def decoder() -> Seeds:
    """Payloads of moderate size that are taken, by the default limits, and small ones not."""
    for vector in read("lbm")["vectors"]:
        if "input" in vector and "limits" not in vector:
            payload = unhex(vector["input"])
            if len(payload) <= (256 if "expected" in vector else 16):
                yield b"\0" + payload


def frames() -> Seeds:
    """The streams of frames, and three raw events in one stream."""
    events = b""
    for vector in read("events")["vectors"]:
        if vector["kind"] == "frames" and len(unhex(vector["input"])) <= 256:
            yield b"\1\5" + unhex(vector["input"])
        elif vector["kind"] == "raw" and "expected" in vector and len(events) < 100:
            event = unhex(vector["input"])
            events += len(event).to_bytes(4) + event
    yield b"\0\7" + events
    for size in (9, 10):  # the limit, and one more
        yield b"\1\7" + size.to_bytes(4) + bytes(6) + b"\1\1" + bytes(size - 8)


def events() -> Seeds:
    """Payloads for the readers, and the rules' exchanges without their keys."""
    readers = {"Hello": 0, "Reply": 1, "Retry": 2, "Proof": 4, "Close": 5, "Notify": 6, "Notes": 7}
    by_event: dict[str, list[bytes]] = {}
    for vector in read("payloads")["vectors"]:
        if vector["event"] in readers and "expected" in vector:
            by_event.setdefault(vector["event"], []).append(unhex(vector["expected"]))
    for vector in read("identity")["vectors"]:
        if vector["kind"] == "cell" and len(payload := unhex(vector["input"])) < 600:
            by_event.setdefault("Proof", []).append(payload)
    for event, payloads in by_event.items():
        for start in range(0, len(payloads), 4):
            steps = [
                Step(Kind.RAW, category=readers[event], payload=payload)
                for payload in payloads[start : start + 4]
            ]
            if len(script := serialise(steps)) < 4000:
                yield b"\0" + script
    yield from _conversations(1, sealed=False)


def handshake() -> Seeds:
    """From each state a handshake that goes well; Hellos, Replies and Retries of the vectors."""
    good = [Step(Kind.ACTION, category=action) for action in (0, 0, 1)]
    for state in range(HANDSHAKE_STATES):
        yield bytes([state]) + serialise(good)
    for vector in read("handshake")["vectors"]:
        sent = vector.get("hello", vector.get("answer"))
        if "first_hello" in vector or not sent or len(unhex(sent)) > LONGEST_RAW:
            continue
        event = parse_raw(unhex(sent))
        step = Step(Kind.EVENT, event.stream, event.async_id, *event.type, event.payload)
        if vector["config"].get("network_key"):
            yield bytes([NETWORK]) + serialise([step])
        else:
            yield bytes([0 if "hello" in vector else 3]) + serialise([step])
    names = {1: "x25519", 2: "ed25519", 3: "md5", 4: "aes-256-gcm", 5: "chain"}
    shared = {"version": 1, "random": bytes(32), "role": "peer", "shares": {"x25519": bytes(32)}}
    for suite in (names, names | {3: "sha256"}):
        reply = cells_payload(**shared, suite=suite)
        yield b"\3" + serialise([Step(Kind.EVENT, 0, 0, *TYPES["Reply"], reply)])
    plain = cells_payload(version=1, random=bytes(32), role="peer", plaintext=True)
    for state in DIALLING:
        yield bytes([state]) + serialise([Step(Kind.EVENT, 0, 0, *TYPES["Reply"], plain)])
    identity = THEIRS.cell()
    for keys in (identity, [], identity * 2, [["rsa", bytes(32), None]]):
        proof = cells_payload(keys=keys, node={"software": "x"})
        for state in (1, 4):
            yield bytes([state]) + serialise([Step(Kind.SEALED, 0, 0, *TYPES["Proof"], proof)])
    proof = cells_payload(keys=identity, node={})
    for state in (1, 4):
        for action in (5, 6):
            yield bytes([state]) + serialise([Step(Kind.ACTION, category=action, payload=proof)])


def connection() -> Seeds:
    """The rules' exchanges, rekeys, and an application that acts."""
    yield from _conversations(1, sealed=True)
    rekeys = [4, 3, 0, 4, 3, 3]
    steps = [Step(Kind.ACTION, category=action, subcategory=14) for action in rekeys]
    yield b"\0" + serialise(steps)
    for share in (bytes(32), bytes(5), b"\x09" + bytes(31)):
        offer = _said(Kind.SEALED, 0, 0, "RekeyOffer", share=share)
        answer = _said(Kind.SEALED, 0, 0, "RekeyAnswer", share=share)
        for steps in ([offer], [Step(Kind.ACTION, subcategory=14), answer], [answer]):
            yield b"\1" + serialise(steps)
    steps = [Step(Kind.ACTION, subcategory=14), Step(Kind.ACTION, category=5)]
    yield b"\1" + serialise([*steps, Step(Kind.ACTION, category=3)])


def journal() -> Seeds:
    """Segments, records and names; of bodies those that are right, and short ones that are not."""
    kinds = list(KINDS)
    for number, vector in enumerate(read("journal")["vectors"]):
        text = vector.get("input", "")
        good = "expected" in vector and "read_only" not in vector
        if vector["kind"] == "name":
            yield b"\1" + text.encode()
        elif vector["kind"] in ("segment", "record"):
            yield b"\0" + unhex(text)
        elif vector["kind"] == "body" and (good or (number % 3 == 0 and len(text) < 400)):
            yield bytes([2 + kinds.index(vector["of"])]) + unhex(text)


def audit() -> Seeds:
    """The payloads of each type, right and wrong, and with cells of other types; a few streams."""
    by_type: dict[tuple[int, int], list[bytes]] = {}
    for vector in (*read("payloads")["vectors"], *read("bus")["vectors"]):
        payload = unhex(vector.get("expected") or vector.get("input") or "")
        if "category" in vector and len(payload) < 200:
            by_type.setdefault((vector["category"], vector["subcategory"]), []).append(payload)
    strange = {"code": "0", "stream": -1, "topic": "harmless.ping", "headers": 5, "label": "x"}
    strange |= {"name": "harmless", "namespace": 1, "deadline_ms": "soon", "notes": 0}
    opening = [_said(Kind.EVENT, 0, 3, "Open", label="topic:news")]
    opening += [_said(Kind.EVENT, 0, 5, "Open", label="topic:unread")]
    opening += [_said(Kind.EVENT, 0, 7, "Open", label="bus")]
    for (category, subcategory), payloads in sorted(by_type.items()):
        stream = 7 if category == 6 else int(category > 2)
        steps = opening + [
            Step(Kind.EVENT, stream, 8, category, subcategory, payload)
            for payload in payloads[:: len(payloads) // 8 + 1]
        ]
        yield b"\0" + serialise(steps)
    for name, cells in REQUIRED.items():
        if (of := TYPES[name])[0] > 1 or name == "Close":
            payload = cells_payload(**{**strange, **cells})
            stream = 9 if name == "Open" else int(of[0] > 2)
            yield b"\0" + serialise([*opening, Step(Kind.EVENT, stream, 8, *of, payload)])
    notes = {"data": 1, "topic": "news"}
    for stream in (1, 3, 5, 7):
        said = [_said(Kind.EVENT, async_id, stream, "Notify", **notes) for async_id in (0, 2)]
        said += [_said(Kind.EVENT, 0, stream, "Notes", notes=[1] * n) for n in (0, 2)]
        yield b"\0" + serialise([*opening, *said])
        yield b"\0" + serialise([*opening, batch_seeds.together(said)])
    held = _said(Kind.EVENT, 7, 1, "Call", topic="hold", request="x")
    yield b"\0" + serialise([held, _said(Kind.EVENT, 0, 1, "Cancel", request=7, topic=1)])


def resume() -> Seeds:
    """Yield first events of unknown peers, positions of all kinds, and sequences of cuts."""
    for vector in read("resume")["vectors"]:
        if vector["kind"] == "stranger":
            event = unhex(vector["input"])
            setting = 1 if vector["network_key"] else 0
            step = Step(Kind.RAW, payload=len(event).to_bytes(4) + event)
            yield bytes([setting]) + serialise([step])
    for position in (0, 1, 60, 2**18, 2**40, 2**64 - 1):
        told = cells_payload(received=position)
        lie = Step(Kind.SEALED, 0, 0, *TYPES["Received"], told)
        yield b"\0" + serialise([lie, lie, Step(Kind.ACTION, category=2)])
    for setting, acts in enumerate(COURSES):
        said = [Step(Kind.ACTION, n & 1, n * 16, act, n, bytes([n])) for n, act in enumerate(acts)]
        yield bytes([setting % 3]) + serialise(said)


def federation() -> Seeds:
    """Short cards, right and wrong; exchanges; Dials at each server; Logins."""
    kinds: dict[str, int] = Counter()
    for vector in read("federation")["vectors"]:
        kinds[vector["kind"]] += 1
        data = unhex(vector.get("input", ""))
        good = "expected" in vector
        match vector["kind"]:
            case "card" if len(data) < 500 and (good or kinds["card"] % 3 == 0):
                yield bytes([ENVELOPE]) + data
            case "exchange" | "statements":
                types = ("have", "cards", "statements")
                events = bytes([EVENTS]) + b"".join(
                    bytes([types.index(kind)]) + len(step := unhex(text)).to_bytes(2) + step
                    for kind, text in vector["steps"]
                    if kind in types and len(text) < 2_000
                )
                if len(events) <= MAX_SIZE:
                    yield events
            case "dial" if not NODES[vector["node"]].homes:
                node = SITUATIONS.index(NODES[vector["node"]])
                neighbour = NEIGHBOURS.index(unhex(vector["neighbour"]))
                yield bytes([DIAL, node, neighbour]) + data
            case "login" if len(data) < 100:
                yield bytes([LOGGING_IN]) + data


def statement() -> Seeds:
    """Short statements and their files, right and wrong; cells 14; what Proofs present."""
    readers = {"statement": STATEMENT, "file": FILE, "origin": ORIGIN, "proof": PROOF}
    kinds: dict[str, int] = Counter()
    for vector in read("keys")["vectors"]:
        kinds[vector["kind"]] += 1
        if vector["kind"] == "chain" and len(presented := vector["presented"]) <= 2:
            payload = cells_payload(statements=[unhex(one) for one in presented])
            yield bytes([CHAIN]) + unhex(vector["peer"]) + payload
        if vector["kind"] not in readers or len(data := unhex(vector["input"])) > 500:
            continue
        good = "expected" in vector or vector["kind"] == "origin"
        if good or kinds[vector["kind"]] % 3 == 0:
            yield bytes([readers[vector["kind"]]]) + data


def key_statements() -> Seeds:
    """The lines of short statements, decisions about them, and lines that are wrong."""
    time = "2027-01-01T00:00:00Z"
    lines: list[str] = []
    ids: list[NodeId] = []
    for vector in read("keys")["vectors"]:
        if vector["kind"] == "statement" and "expected" in vector:
            statement = Statement.parse(unhex(vector["input"]))
            if len(statement.encoded) <= 450:
                lines.append(f"statement {b64encode(statement.encoded).decode()} {time}")
                ids += [statement.origin, statement.successor or statement.origin]
    decisions = [
        f"decision {origin} {successor} {time}"
        for origin, successor in ((ids[0], ids[1]), (ids[0], "none"), (ids[1], ids[0]))
    ]
    for line in (*lines[:8], *decisions, ""):
        yield f"{line}\n".encode()
    for line in (lines[0], decisions[0]):
        for wrong in (line[:-1], line[:-21], f"{line} more", line.replace("A", "="), line.upper()):
            yield f"{wrong}\n".encode()
    yield "\n".join([*lines[:4], *decisions]).encode()
    yield "\n".join([*decisions, *lines[3::-1], lines[0]]).encode()
    yield f"statement AAAA {time}\n".encode()


def planted() -> Seeds:
    """A map of one cell."""
    yield cells_payload(version=1)


SEEDS: Final[Mapping[str, Callable[[], Seeds]]] = {
    "decoder": decoder,
    "frames": frames,
    "events": events,
    "handshake": handshake,
    "connection": connection,
    "resume": resume,
    "batch": batch_seeds.batch,
    **dialect_seeds.SEEDS,
    "journal": journal,
    "audit": audit,
    "federation": federation,
    "statement": statement,
    "key_statements": key_statements,
    PLANTED: planted,
}


def _conversations(setting: int, *, sealed: bool) -> Seeds:
    """The remote steps of each rule, and one script for each thing an application does."""
    kind = Kind.SEALED if sealed else Kind.EVENT
    for vector in (*read("rules")["vectors"], *batch_seeds.EXCHANGES):
        steps = [_remote(kind, step) for step in vector["steps"] if step["from"] == "remote"]
        script = serialise(step for step in steps if len(step.payload) < 1024)
        if script and len(script) < 2048:
            yield bytes([setting]) + script
    for number, stream in ((setting, 2), SMALL):
        peer = _vocabulary(kind, stream)
        for acts in SCRIPTS:
            steps = [peer[act] if isinstance(act, str) else _act(act, stream) for act in acts]
            yield bytes([number]) + serialise(steps)


def _vocabulary(kind: Kind, stream: int) -> dict[str, Step]:
    """Yield the peer's messages and the events of `SCRIPTS`."""
    data = {"data": 5}
    held: dict[str, Any] = {"topic": "hold", "data": [1, {"a": None}, b"bytes"], "deadline_ms": 9}
    return {
        "open": _said(kind, 0, stream, "Open", label="topic:news"),
        "result": _said(kind, 1, 1, "Result", code=0, stream=stream),
        "note": _said(kind, 0, stream, "Notify", **data),
        "headed": _said(kind, 0, stream, "Notify", **data, headers={"parley.dropped": 3}),
        "asking": _said(kind, 3, 1, "Notify", **data, topic="news"),
        "notes": _said(kind, 0, stream, "Notes", notes=[1, 2]),
        "finish": Step(kind, stream, 0, *TYPES["Finish"]),
        "chunk": _said(kind, 1, 1, "Chunk", **data),
        "plain": _said(kind, 0, stream, "Open", label="app/x"),
        "subscribe": _said(kind, 5, 1, "Subscribe", topic="news"),
        "call": _said(kind, 6, 1, "Call", topic="items", data=1, window=100),
        "list": _said(kind, 9, 1, "Call", **held, headers={"a": 1}),
        "silent": _said(kind, 0, 1, "Call", **held),
        "cancel": _said(kind, 0, 1, "Cancel", request=6),
        "leave": _said(kind, 7, 1, "Unsubscribe", topic="news"),
        "data": Step(kind, stream, 0, *TYPES["Data"], b"abc"),
        "ask": Step(kind, stream, 9, 64, 1, b"abc"),
        "forget": _said(kind, 0, stream, "Cancel", request=9),
        "answer": Step(kind, stream, 1, 64, 2, b"abc"),
        "emit": _said(kind, 8, 1, "Emit", name="x"),
        "emit json": _said(kind, 4, 1, "Emit", name="echo", data=b'{"a":[1]}', format=3),
        "emit there": _said(kind, 3, 1, "Emit", name="x", namespace="y", data=b"1"),
        "emit without a receiver": _said(kind, 2, 1, "Emit", name="z", **data, format=16),
        "emit silently": _said(kind, 0, 1, "Emit", name="hold", data=b"\x81\x01", format=17),
        "forget emit": _said(kind, 0, 1, "Cancel", request=8),
        "reply": _said(kind, 1, 1, "Named Reply", name="tick", **data, format=16),
        "much reply": _said(kind, 1, 1, "Named Reply", data=bytes(600)),
        "end": _said(kind, 1, 1, "End", **data, format=16),
        "error": _said(kind, 1, 1, "Error", code=500, text="failed"),
        "grant": _said(kind, 0, 0, "Window", stream=stream, credit=2000),
        "grant chunks": _said(kind, 0, 0, "Window", stream=1, credit=500, request=6),
        "reset": _said(kind, 0, 0, "Reset", stream=stream, code=32),
        "much": Step(Kind.ACTION, stream, subcategory=7, payload=bytes(900)),
        "publish": Step(Kind.ACTION, 7, subcategory=5, payload=bytes(200)),
        "block": Step(Kind.ACTION, category=2),
        "pause": Step(Kind.ACTION, category=1, subcategory=8),
        "wait": Step(Kind.ACTION, category=1, subcategory=200),
    }


def _remote(kind: Kind, step: Mapping[str, Any]) -> Step:
    event = parse_raw(unhex(step["raw_event"]))
    return Step(kind, event.stream, event.async_id, *event.type, event.payload)


def _said(kind: Kind, async_id: int, stream: int, name: str, /, **cells: Any) -> Step:
    return Step(kind, stream, async_id, *TYPES[name], cells_payload(**cells))


def _act(number: int, stream: int) -> Step:
    return Step(Kind.ACTION, stream, 1, 0, number, b"\x05")


def main(arguments: list[str]) -> int:
    """Writes the seeds, or with --check names the targets whose seeds differ."""
    differing = []
    for target, make in SEEDS.items():
        folder = CORPUS / target
        wanted = {PREFIX + sha256(seed).hexdigest()[:16]: seed for seed in make()}
        present = {path.name: path.read_bytes() for path in folder.glob(PREFIX + "*")}
        if present == wanted:
            continue
        if "--check" in arguments:
            differing.append(target)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for name in present.keys() - wanted.keys():
            (folder / name).unlink()
        for name, seed in wanted.items():
            (folder / name).write_bytes(seed)
    for target in differing:
        print(f"the seeds of {target} are not those that the vectors make")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
