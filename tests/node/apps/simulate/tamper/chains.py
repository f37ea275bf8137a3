"""Tampering that needs the chain computed anew: everything after a flipped bit, or an early end.

Whatever can be computed without a key is made right; seals are not. A session's later segments are
changed along with the first.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from parley._node.apps.simulate.draws import Draws
from parley._node.journal import keys
from parley._node.journal.bodies import SessionEnd
from parley._node.journal.fields import parse_event_head
from parley._node.journal.sessions import Checkpoint
from parley._node.protocol.codes import CloseCode
from tests.node.apps.simulate.tamper.events import flipped, planted
from tests.node.apps.simulate.tamper.planted import Fault, Planted
from tests.node.apps.simulate.tamper.segment import Segment
from tests.node.apps.simulate.tamper.survey import Stretch, WrittenSession
from tests.node.apps.simulate.tamper.wires import Chains

# Codes that a forger might prefer: went well, went away, was busy.
_CODES: Final = (CloseCode.NORMAL, CloseCode.GOING_AWAY, CloseCode.TIMEOUT, CloseCode.OVERLOADED)
# An early end leaves and removes at least so many records.
_LEAST: Final = 8


def rechain(stretch: Stretch, draws: Draws) -> Planted | None:
    """Flip a bit of a blob, and make the chain right from there to the session's end."""
    session, direction = stretch.session, stretch.direction
    chains = Chains(session.facts)
    if chains.shape.each or stretch.count < _LEAST:
        return None
    chosen = draws.randrange(stretch.count // 2)
    seen = -1
    for path in session.segments[session.segments.index(stretch.path) :]:
        segment = Segment(path)
        for index in segment.of_session(session.number):
            record = segment.records[index]
            if record.kind == keys.CHECKPOINT and seen >= chosen:
                segment.put(index, _with_chain(record.body, direction, chains.values[direction]))
            elif record.kind == keys.SESSION_END:
                segment.put(index, _with_end(record.body, direction, chains.values[direction]))
            elif record.kind == keys.EVENT and parse_event_head(record.body)[1] == direction:
                seen += 1
                wire = segment.wire(index)
                if seen < chosen:
                    chains.follow(record)
                    continue
                if seen == chosen:
                    wire = flipped(wire, draws.randrange(chains.shape.blob(wire), len(wire)), draws)
                segment.put_wire(index, chains.rechained(direction, wire))
            else:
                chains.follow(record)
        segment.save()
    return planted(Fault.RECHAIN, stretch, chosen, session.places[direction] + 1 - stretch.first)


def forge_code(session: WrittenSession, path: Path, draws: Draws) -> Planted | None:
    """Have a session's end another code."""
    segment = Segment(path)
    for index in segment.of_session(session.number):
        record = segment.records[index]
        if record.kind != keys.SESSION_END:
            continue
        end = SessionEnd.parse(record.body)
        if end.code < 0:
            return None  # a connection that was lost sealed no Close: no code can be proven
        code = draws.choice([code for code in _CODES if code != end.code])
        segment.put(index, replace(end, code=code, text="").encode())
        segment.save()
        return _end(session, path, f"code {end.code} is now {int(code)}")
    return None


def forge_early_end(session: WrittenSession, path: Path, draws: Draws) -> Planted | None:
    """End a session in the midst of `path`, as a lost connection would, and remove the rest."""
    segment = Segment(path)
    mine = segment.of_session(session.number)
    events = [i for i in mine if segment.records[i].kind == keys.EVENT]
    good = [i for i in events[_LEAST:-_LEAST] if not segment.updates_keys(i)]
    if not good:
        return None
    cut = draws.choice(good)
    chains = Chains(session.facts)
    for index in mine:
        if index <= cut:
            chains.follow(segment.records[index])
    places = chains.places[0], chains.places[1]
    end = SessionEnd(session.number, CloseCode.CONNECTION_LOST, False, "", chains.values, places)
    last = segment.records[cut]
    after = {index for index in mine if index > cut}
    segment.records = [r for index, r in enumerate(segment.records) if index not in after]
    forged = last._replace(kind=keys.SESSION_END, time=last.time + 1_000, body=end.encode())
    segment.records.insert(cut + 1, forged)
    segment.save()
    for later in session.segments[session.segments.index(path) + 1 :]:
        _remove(session, later)
    removed = sum(session.places) - sum(places)
    detail = f"ends at places {places[0]} received, {places[1]} sent"
    return _end(session, path, detail, removed)


def _end(session: WrittenSession, path: Path, detail: str, count: int = 0) -> Planted:
    node = path.name.partition("-")[0]
    session_id = session.facts.session_id.hex()
    return Planted(Fault.FORGED_END, path.name, node, session_id, count=count, detail=detail)


def _remove(session: WrittenSession, path: Path) -> None:
    segment = Segment(path)
    mine = set(segment.of_session(session.number))
    segment.records = [r for index, r in enumerate(segment.records) if index not in mine]
    segment.save()


def _with_chain(body: bytes, direction: int, value: bytes) -> bytes:
    checkpoint = Checkpoint.parse(body)
    name = "sent" if direction == keys.SENT else "received"
    state = replace(getattr(checkpoint, name), chain=value)
    return replace(checkpoint, **{name: state}).encode()


def _with_end(body: bytes, direction: int, value: bytes) -> bytes:
    end = SessionEnd.parse(body)
    received, sent = end.chains
    chains = (received, value) if direction == keys.SENT else (value, sent)
    return replace(end, chains=chains).encode()
