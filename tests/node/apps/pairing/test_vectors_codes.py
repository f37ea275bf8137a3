"""The test vectors of short codes: texts, messages of the listening node, and results of
attempts.
"""

import pytest

from parley._crypto.identity import NodeId
from parley._crypto.registry import HASHES
from parley._crypto.spake2 import Spake2, password_scalar
from parley._node.apps.pairing.code import Code, CodeTextError, ExchangeRefused, looks_like_code
from parley._node.apps.pairing.exchange import CodeAttempts
from tests.vectors.load import Vector, of_kind, unhex, vectors

OTHER_ADDRESSES = [f"192.0.2.{number}" for number in range(256)]


def context(vector: Vector) -> bytes:
    code = Code(vector["slot"], vector["words"])
    hash = HASHES[vector["hash"]]
    return code.context(hash, unhex(vector["exporter"]), unhex(vector["session_id"]))


def giving(vector: Vector) -> CodeAttempts:
    return CodeAttempts(Code(vector["slot"], vector["words"]), NodeId(unhex(vector["giver"])), 0.0)


def begun(giver: CodeAttempts, vector: Vector, who: int, now: float, opening: bytes) -> bytes:
    taker, private = NodeId(unhex(vector["taker"])), unhex(vector["y"])
    address = OTHER_ADDRESSES[who]
    return giver.begin(who, address, now, opening, taker, context(vector), private=private)


@vectors("codes", of_kind("text"))
def test_a_text(vector: Vector) -> None:
    if "fails" in vector:
        with pytest.raises(CodeTextError):
            Code.parse(vector["input"])
        return
    code, expected = Code.parse(vector["input"]), vector["expected"]
    assert (code.slot, code.words) == (expected["slot"], expected["words"])
    assert looks_like_code(vector["input"])
    assert password_scalar(code.password).hex() == expected["w"]
    assert Code.parse(str(code)) == code


@vectors("codes", of_kind("exchange"))
def test_an_exchange(vector: Vector) -> None:
    opening, answer, of_taker, of_giver = map(unhex, vector["expected"]["messages"])
    code, giver = Code(vector["slot"], vector["words"]), giving(vector)
    assert context(vector) == unhex(vector["expected"]["aad"])
    taker = Spake2(code.password, first=True, private=unhex(vector["x"]))
    assert taker.share == opening[2:]
    assert begun(giver, vector, 0, 1.0, opening) == answer
    ids = unhex(vector["taker"]), unhex(vector["giver"])
    shown = taker.finish(answer, *ids, context(vector))
    assert shown.ours == of_taker
    assert giver.confirm(0, 1.0, of_taker) == of_giver
    assert shown.check(of_giver)


@vectors("codes", of_kind("tries"))
def test_results_of_attempts(vector: Vector) -> None:
    code, giver = Code(vector["slot"], vector["words"]), giving(vector)
    share = Spake2(code.password, first=True, private=unhex(vector["x"]))
    openings = {
        "begin": (7).to_bytes(2) + share.share,
        "slot": (8).to_bytes(2) + share.share,
        "share": (7).to_bytes(2) + bytes(32),
    }
    right = b""
    for taker_name, now, what, reset in vector["steps"]:
        found = 0
        try:
            if what == "break":
                giver.leave(taker_name)
            elif what in openings:
                answer = begun(giver, vector, taker_name, now, openings[what])
                taker = Spake2(code.password, first=True, private=unhex(vector["x"]))
                ids = unhex(vector["taker"]), unhex(vector["giver"])
                right = taker.finish(answer, *ids, context(vector)).ours
            else:
                giver.confirm(taker_name, now, right if what == "right" else bytes(32))
        except ExchangeRefused as refused:
            found = refused.code
        assert found == reset, (taker_name, now, what)
    assert giver.failed == vector["failed"]
    assert giver.taken == any(step[2:] == ["right", 0] for step in vector["steps"])
