"""Tests of the cache of Proofs: its entries, its size, and that timing doesn't reveal it."""

import pytest

from parley._crypto.identity import Identity, PublicIdentity
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol import handshake as proofs
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.handshake import KEPT_PROOFS, keep, read_proof, refuse
from tests.node.protocol.pair import Pair
from tests.vectors.load import Vector, of_kind, unhex, vectors


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "kept_proofs", {})


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that gets an entry for each identity that is checked."""
    seen: list[object] = []
    parse = PublicIdentity.parse

    def watched(entries: list[object]) -> PublicIdentity:
        seen.append(entries)
        return parse(entries)

    monkeypatch.setattr(PublicIdentity, "parse", watched)
    return seen


def payload(identity: Identity) -> bytes:
    return CoreConfig(identity=identity, node_info={"name": "x"}).proof_payloads[-1]


def test_a_proof_is_checked_once_if_its_seal_was_right(checks: list[object]) -> None:
    data = payload(Identity.create())
    first = read_proof(data)
    assert not first.kept
    keep(data, first)
    again = read_proof(data)
    assert again.kept
    assert again.identity is first.identity
    assert len(checks) == 1


def test_a_proof_with_a_wrong_seal_is_not_kept(checks: list[object]) -> None:
    data = payload(Identity.create())
    for _ in range(3):
        refuse(data, read_proof(data))
    assert len(checks) == 3


def test_a_wrong_seal_takes_a_check_whoever_was_here(checks: list[object]) -> None:
    """Otherwise the time would reveal whether that node was connected recently."""
    known, stranger = payload(Identity.create()), payload(Identity.create())
    keep(known, read_proof(known))
    checks.clear()
    for data in (known, stranger):
        refuse(data, read_proof(data))
    assert len(checks) == 2


def test_information_is_each_readers_own() -> None:
    data = payload(Identity.create())
    keep(data, read_proof(data))
    read_proof(data).info()["name"] = "changed"
    assert read_proof(data).info() == {"name": "x"}


def test_so_many_are_kept_and_the_oldest_goes() -> None:
    identity = Identity.create()
    every = [
        CoreConfig(identity=identity, node_info={"n": number}).proof_payloads[-1]
        for number in range(KEPT_PROOFS + 10)
    ]
    for data in every:
        keep(data, read_proof(data))
        keep(every[0], read_proof(every[0]))  # used often, so it is never the oldest
    assert len(proofs.kept_proofs) == KEPT_PROOFS
    assert read_proof(every[0]).kept
    assert not read_proof(every[1]).kept
    assert read_proof(every[-1]).kept


def test_peers_that_meet_again_are_not_checked_again(checks: list[object]) -> None:
    ours, theirs = (CoreConfig(identity=Identity.create()) for _ in range(2))
    for _ in range(2):
        pair = Pair(ours, theirs)
        pair.pump()
        assert pair.a.opened
        assert pair.b.opened
        assert len(checks) == 2


@vectors("keys", of_kind("proof"), fails=False)
def test_the_statements_of_a_proof(vector: Vector) -> None:
    data = unhex(vector["input"])
    proof = read_proof(data)
    assert [one.hex() for one in proof.statements] == vector["expected"]["statements"]
    keep(data, proof)
    assert read_proof(data).statements == proof.statements


@vectors("keys", of_kind("proof"), fails=True)
def test_a_proof_with_other_statements_is_malformed(vector: Vector) -> None:
    with pytest.raises(LbmDecodeError):
        read_proof(unhex(vector["input"]))


def test_proofs_with_other_statements_are_others() -> None:
    identity = Identity.create()
    one, other = (CoreConfig(identity=identity, statements=(text,)) for text in (b"1", b"2"))
    for core in (one, other):
        data = core.proof_payloads[0]
        keep(data, read_proof(data))
        assert read_proof(data).statements == core.statements
