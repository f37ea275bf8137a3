"""Vectors for key statements between members (section 22): Have and Statements, from one end's
view.
"""

from dataclasses import replace
from typing import Any

from tests.reference.envelopes import CardTable
from tests.reference.flooding import Flooding
from tests.reference.sharing import Sharing
from tests.reference.statements import read
from tests.reference.vectors_cards import NOW, OTHER, OWN, OWN_NUMBER, outer
from tests.reference.vectors_statements import Draft, key_of
from tests.reference.wire import TYPES, Violation

Vector = dict[str, Any]

# A member A has the successor B, and B has the successor C; D and E also claim to succeed A.
_A_TO_B = Draft().encode()
_B_TO_C = Draft(old=key_of(3), recovery=key_of(4), new=key_of(5), new_recovery=key_of(6)).encode()
_A_TO_D = Draft(new=key_of(7), new_recovery=key_of(8)).encode()
_A_TO_E = Draft(new=key_of(9), new_recovery=key_of(10)).encode()
_A_ENDS = Draft("revocation").encode()
_A_ENDS_BY_PRIMARY = Draft("revocation", by_recovery=False).encode()
_C_ENDS = Draft("revocation", old=key_of(5), recovery=key_of(6)).encode()
_Z = Draft(old=key_of(21), recovery=key_of(22), new=key_of(23), new_recovery=key_of(24))
_Z_TO_Y = _Z.encode()
_Z_TO_A = replace(_Z, new=key_of(1), new_recovery=key_of(2)).encode()
_FORGED = Draft("revocation", signer=key_of(20)).encode()
_WITHOUT_CONSENT = Draft(consenting=key_of(20)).encode()
_FORGED_OF_Z = replace(_Z, kind="revocation", signer=key_of(20)).encode()
_OF_ANOTHER_ID = Draft("revocation", content=(("origin", OTHER),)).encode()
_OF_ANOTHER_KIND = Draft("delegation").encode()
ENDED = read(_A_TO_B).origin  # A
_SLOT = {
    data: read(data).slot
    for data in (_A_TO_B, _B_TO_C, _A_TO_D, _A_TO_E, _A_ENDS, _C_ENDS, _Z_TO_Y, _Z_TO_A)
}


def _have(*known: bytes) -> tuple[str, bytes]:
    return "have", outer(have=[], slots=[_SLOT[data] for data in known])


def _sent(*found: bytes) -> tuple[str, bytes]:
    return "statements", outer(statements=list(found))


_OLD_HAVE = "have", outer(have=[])
# By name: what this end has stored, and what happens.
_EXCHANGES: dict[str, tuple[tuple[bytes, ...], list[tuple[str, bytes]]]] = {
    "the other has nothing": ((_A_TO_B, _B_TO_C, _A_ENDS), [_have()]),
    "the other has one": ((_A_TO_B, _B_TO_C), [_have(_A_TO_B)]),
    "the other has all": ((_A_TO_B, _B_TO_C), [_have(_B_TO_C, _A_TO_B)]),
    "the other has others": ((_A_TO_B,), [_have(_Z_TO_Y)]),
    "the other accepts none": ((_A_TO_B,), [_OLD_HAVE]),
    "the other accepts none, but sends some": ((_A_ENDS,), [_OLD_HAVE, _sent(_A_TO_B)]),
    "what is not connected with a member is not shared": ((_Z_TO_Y, _A_TO_B), [_have()]),
    "what leads to a member is shared": ((_Z_TO_A,), [_have()]),
    "a successor of a member is connected": ((_B_TO_C, _C_ENDS, _A_TO_B), [_have()]),
    "what ends a successor alone is not": ((_C_ENDS, _B_TO_C), [_have()]),
    "a statement comes": ((), [_have(), _sent(_A_TO_B)]),
    "it is not sent back": ((), [_have(), _sent(_A_TO_B), ("news", _A_TO_B)]),
    "it is sent in the next stream, if the other lacks it": (
        (_A_TO_B,),
        [_OLD_HAVE, _sent(_A_TO_B), ("stream", b""), _have()],
    ),
    "news": ((), [_have(), ("news", _A_TO_B), ("news", _B_TO_C)]),
    "news before the other's Have": ((), [("news", _A_TO_B), _have()]),
    "news that the other has by its Have": ((), [_have(_A_TO_B), ("news", _A_TO_B)]),
    "news of the same slot again": (
        (),
        [_have(), ("news", _A_ENDS), ("news", _A_ENDS_BY_PRIMARY)],
    ),
    "a statement that was lost is sent in the next stream": (
        (_A_TO_B,),
        [_have(), ("stream", b""), _have(), ("news", _B_TO_C)],
    ),
    "a statement that arrived is not sent in the next stream": (
        (_A_TO_B,),
        [_have(), ("stream", b""), _have(_A_TO_B), ("news", _B_TO_C)],
    ),
    "news is not sent before the next stream's Have": (
        (_A_TO_B,),
        [_have(), ("stream", b""), ("news", _B_TO_C), _have(_A_TO_B)],
    ),
    "a predecessor comes first": ((), [_have(), _sent(_A_TO_B, _B_TO_C, _C_ENDS)]),
    "a predecessor comes last": ((), [_have(), _sent(_C_ENDS, _B_TO_C, _A_TO_B)]),
    "one that is not on record": ((), [_have(), _sent(_Z_TO_Y, _A_TO_B)]),
    "one that leads to a member": ((), [_have(), _sent(_Z_TO_A)]),
    "a successor in a conflict": ((), [_have(), _sent(_A_TO_B, _A_TO_D, _B_TO_C)]),
    "a third succession": ((), [_have(), _sent(_A_TO_B, _A_TO_D, _A_TO_E, _A_ENDS)]),
    "a wrong signature": ((), [_have(), _sent(_FORGED, _A_TO_B)]),
    "a wrong consent": ((), [_have(), _sent(_WITHOUT_CONSENT, _A_ENDS)]),
    "a wrong signature of a known slot": ((_A_ENDS,), [_have(_A_ENDS), _sent(_FORGED)]),
    "23 wrong signatures": ((), [_have(), _sent(*[_FORGED] * 23, _A_TO_B)]),
    "24 wrong signatures": ((), [_have(), _sent(*[_FORGED] * 24, _A_TO_B, _A_ENDS)]),
    "24 wrong signatures and consents": (
        (),
        [_have(), _sent(*[_FORGED, _WITHOUT_CONSENT] * 12, _A_TO_B)],
    ),
    "24 wrong signatures at the end": ((), [_have(), _sent(_A_TO_B, *[_FORGED] * 24)]),
    "wrong signatures of a known slot do not count": (
        (_A_ENDS,),
        [_have(), _sent(*[_FORGED] * 24, _A_TO_B)],
    ),
    "wrong signatures about IDs that are not on record do not count": (
        (),
        [_have(), _sent(*[_FORGED_OF_Z] * 24, _A_TO_B)],
    ),
    "wrong identities do not count": ((), [_have(), _sent(*[_OF_ANOTHER_ID] * 24, _A_TO_B)]),
    "a wrong signature above the rate": (
        (),
        [_have(), *[_sent(_FORGED)] * 11, _sent(_FORGED), _sent(_FORGED, _A_TO_B)],
    ),
    "24 events": ((), [_have(), *[_sent(b"")] * 23, _sent(_A_TO_B)]),
    "25 events": ((), [_have(), *[_sent(b"")] * 24, _sent(_A_TO_B)]),
    "a malformed event above the rate": ((), [_have(), *[_sent(b"")] * 24, _sent()]),
    "a malformed event within the rate": ((), [_have(), *[_sent(b"")] * 23, _sent()]),
    "a malformed event behind wrong signatures": ((), [_have(), _sent(*[_FORGED] * 22), _sent()]),
    "Statements before Have above the rate": (
        (),
        [_have(), *[_sent(b"")] * 24, ("stream", b""), _sent(_A_TO_B)],
    ),
    "the next stream does not renew the rate": (
        (),
        [_have(), _sent(*[_FORGED] * 23), ("stream", b""), _have(), _sent(_A_TO_B)],
    ),
    "another kind": ((), [_have(), _sent(_OF_ANOTHER_KIND, _A_TO_B)]),
    "what is no statement": ((), [_have(), _sent(b"", b"\xff", _A_TO_B)]),
    "64 of them": ((), [_have(), _sent(*[b""] * 63, _A_TO_B)]),
    "65 of them": ((), [_have(), _sent(*[b""] * 64, _A_TO_B)]),
    "no Statements": ((), [_have(), _sent()]),
    "Statements before Have": ((), [_sent(_A_TO_B)]),
    "Statements before Have that are malformed": ((), [_sent()]),
    "Statements before Have of the next stream": (
        (),
        [_have(), ("stream", b""), _sent(_A_TO_B)],
    ),
    "a second Have": ((_A_TO_B,), [_have(), _have(_A_TO_B)]),
    "Statements that are text": ((), [_have(), ("statements", outer(statements=["text"]))]),
    "Statements that are an array in an array": (
        (),
        [_have(), ("statements", outer(statements=[[_A_TO_B]]))],
    ),
    "Statements in the cell of Cards": ((), [_have(), ("statements", outer(envelopes=[_A_TO_B]))]),
    "Statements that are a byte string": ((), [_have(), ("statements", outer(statements=_A_TO_B))]),
    "Statements that are not LBM": ((), [_have(), ("statements", b"\xff")]),
    "Statements with a byte behind": (
        (),
        [_have(), ("statements", outer(statements=[_A_TO_B]) + b"\0")],
    ),
    "Have with slots of 31 bytes": ((), [("have", outer(have=[], slots=[bytes(31)]))]),
    "Have with slots of 33 bytes": ((), [("have", outer(have=[], slots=[bytes(33)]))]),
    "Have with a slot that is text": ((), [("have", outer(have=[], slots=["x" * 32]))]),
    "Have with slots that are a byte string": ((), [("have", outer(have=[], slots=bytes(32)))]),
    "Have with slots that are a map": ((), [("have", outer(have=[], slots={}))]),
    "Have with slots and without cards": ((), [("have", outer(slots=[]))]),
    "Have with 1,025 slots": ((), [("have", outer(have=[], slots=[bytes(32)] * 1_025))]),
}


def sharing_vectors() -> list[Vector]:
    """Have and Statements, from one end's view."""
    return [_exchanged(name, stored, steps) for name, (stored, steps) in _EXCHANGES.items()]


def _exchanged(name: str, stored: tuple[bytes, ...], steps: list[tuple[str, bytes]]) -> Vector:
    members = {OTHER, ENDED}
    sharing = Sharing({OWN, *members}, stored)
    vector: Vector = {
        "name": f"statements: {name}",
        "kind": "statements",
        "members": sorted(one.hex() for one in members),
        "stored": [one.hex() for one in stored],
        "steps": [[kind, data.hex()] for kind, data in steps],
    }
    table = CardTable(OWN, members, OWN_NUMBER)
    flooding = Flooding(table, {}, sharing)
    slots, sent = sharing.slots(), []
    try:
        for kind, data in steps:
            flooding.shared = set()
            if kind == "stream":
                flooding = Flooding(table, {}, sharing)
            elif kind == "news":
                flooding.shared = sharing.news(data)
            else:
                flooding.receive(TYPES[kind.capitalize()][1], data, NOW)
            sent.append(sorted(slot.hex() for slot in flooding.shared))
    except Violation as violation:
        return {**vector, "fails": violation.code, "why": violation.why}
    expected = {
        "slots": [slot.hex() for slot in slots],
        "sent": sent,
        "stored": sorted(slot.hex() for slot in sharing.stored),
        "dropped": sharing.dropped,
        "ignored": sharing.ignored,
    }
    return {**vector, "expected": expected}
