"""Tests of node/trust/policies.py: the peers that each policy accepts, and the texts of
refusals.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._node.errors import ConfigError, IdentityChangedError, NotTrustedError
from parley._node.protocol.codes import CloseCode
from parley._node.trust.known_peers import KnownPeer, KnownPeers
from parley._node.trust.policies import (
    AnyPeer,
    FirstUse,
    Known,
    OneOf,
    OneOnly,
    Pinned,
    TrustPolicy,
    default_known_peers,
    known_peers_of,
    parse_trust,
    recheck,
)
from parley._node.trust.words import fingerprint

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ALICE, BOB, EVE = (Identity.create().public for _ in range(3))
PLACE, ELSEWHERE = "tcp://h:1", "tcp://h:2"


@pytest.fixture
def known_peers(tmp_path: Path) -> KnownPeers:
    return KnownPeers(tmp_path / "known_peers")


@pytest.fixture
def first_use(known_peers: KnownPeers) -> FirstUse:
    return FirstUse(known_peers, clock=lambda: NOW)


def refused(policy: TrustPolicy, name: str | None = None) -> str:
    with pytest.raises(NotTrustedError) as caught:
        policy.check(EVE, name)
    assert caught.value.code == CloseCode.PEER_NOT_TRUSTED
    text = caught.value.text
    assert text.startswith(f"trust policy '{policy.name}' refused {EVE.node_id}: ")
    return text


def test_plaintext_is_for_any_peer_only(known_peers: KnownPeers, first_use: FirstUse) -> None:
    policies: list[TrustPolicy] = [
        AnyPeer(),
        Pinned(ALICE.node_id),
        OneOf([ALICE.node_id]),
        Known(known_peers),
        first_use,
    ]
    assert [(policy.name, policy.allows_plaintext) for policy in policies] == [
        ("any", True),
        ("pinned", False),
        ("one-of", False),
        ("known", False),
        ("first-use", False),
    ]


def test_pinned_trusts_one() -> None:
    policy = Pinned(ALICE.node_id)
    policy.check(ALICE, None)
    policy.check(ALICE, PLACE)
    assert f"{ALICE.node_id} is expected" in refused(policy)
    # An equal ID in another object is accepted.
    Pinned(NodeId(bytes(ALICE.node_id))).check(ALICE, None)


def test_one_of_trusts_its_members() -> None:
    policy = OneOf([ALICE.node_id, BOB.node_id])
    policy.check(ALICE, None)
    policy.check(BOB, PLACE)
    assert "not among the 2 expected" in refused(policy)
    assert "not among the 0 expected" in refused(OneOf(()))


def test_known_trusts_recorded_peers(known_peers: KnownPeers) -> None:
    policy = Known(known_peers)
    assert f"it is not in {known_peers.path}" in refused(policy)
    known_peers.add(ALICE.node_id, PLACE, NOW)
    known_peers.add(BOB.node_id, None, NOW)
    policy.check(ALICE, None)
    policy.check(ALICE, PLACE)
    policy.check(BOB, None)
    policy.check(BOB, ELSEWHERE)
    assert f"it is not in {known_peers.path}" in refused(policy)


def test_known_writes_nothing(known_peers: KnownPeers) -> None:
    known_peers.add(ALICE.node_id, None, NOW)
    before = known_peers.path.read_bytes()
    Known(known_peers).check(ALICE, PLACE)
    refused(Known(known_peers), name=ELSEWHERE)
    assert known_peers.path.read_bytes() == before


def test_first_use_records_id_name_and_time(first_use: FirstUse, known_peers: KnownPeers) -> None:
    first_use.check(ALICE, PLACE)
    first_use.check(BOB, None)
    assert list(KnownPeers(known_peers.path)) == [
        KnownPeer(ALICE.node_id, NOW, (PLACE,)),
        KnownPeer(BOB.node_id, NOW),
    ]


def test_first_use_takes_the_time_from_its_clock(known_peers: KnownPeers) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    FirstUse(known_peers).check(ALICE, None)
    peer = known_peers.lookup(ALICE.node_id)
    assert peer is not None
    assert before <= peer.first_seen <= datetime.now(UTC)


def test_first_use_logs_recorded_peers(
    first_use: FirstUse, known_peers: KnownPeers, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (PLACE, None, "tcp://another:1"):
        first_use.check(ALICE, name)
    first_use.check(EVE, None)
    first, second = caplog.messages  # and no line for a known peer
    words = fingerprint(ALICE.node_id)
    assert first == (f"first use: recorded the node at {PLACE}: {ALICE.node_id} ({words})")
    assert second.startswith("first use: recorded the node that connected: ")


def test_first_use_adds_further_names(first_use: FirstUse, known_peers: KnownPeers) -> None:
    first_use.check(ALICE, None)
    first_use.check(ALICE, PLACE)
    first_use.check(ALICE, ELSEWHERE)
    assert list(known_peers) == [KnownPeer(ALICE.node_id, NOW, (PLACE, ELSEWHERE))]


def test_first_use_recheck_records_no_peer(first_use: FirstUse, known_peers: KnownPeers) -> None:
    first_use.check(EVE, PLACE)
    known_peers.add(ALICE.node_id, None, NOW)
    recheck(first_use, EVE, PLACE)
    recheck(first_use, EVE, ELSEWHERE)  # which is not recorded either
    known_peers.rename(EVE.node_id, "eve")
    recheck(first_use, EVE, PLACE)
    known_peers.add(ALICE.node_id, PLACE, NOW)
    with pytest.raises(IdentityChangedError):
        recheck(first_use, EVE, PLACE)
    known_peers.forget(EVE.node_id)
    with pytest.raises(NotTrustedError, match="it is not in"):
        recheck(first_use, EVE, None)
    assert [peer.node_id for peer in known_peers] == [ALICE.node_id]


def test_one_node_only_and_only_if_it_is_trusted(
    first_use: FirstUse, known_peers: KnownPeers
) -> None:
    policy = OneOnly(ALICE.node_id, first_use)
    assert (policy.name, policy.reads_files) == ("first-use", True)
    assert known_peers_of(policy) is known_peers
    with pytest.raises(NotTrustedError, match="'pinned' refused"):
        policy.check(EVE, PLACE)
    assert len(known_peers) == 0
    policy.check(ALICE, PLACE)
    recheck(policy, ALICE, PLACE)
    known_peers.forget(ALICE.node_id)
    with pytest.raises(NotTrustedError, match="it is not in"):
        recheck(policy, ALICE, PLACE)
    assert known_peers_of(OneOnly(ALICE.node_id, AnyPeer())) is None

    class Named(AnyPeer):
        known_peers = frozenset({ALICE.node_id})  # which is not a file

    assert known_peers_of(Named()) is None
    # Rechecked with `check`, like every policy without `recheck`.
    with pytest.raises(NotTrustedError):
        recheck(OneOnly(EVE.node_id, OneOf([ALICE.node_id])), EVE, None)


@pytest.mark.parametrize("eve_is_known", [False, True])
def test_first_use_refuses_another_id_behind_a_name(
    first_use: FirstUse, known_peers: KnownPeers, eve_is_known: bool
) -> None:
    first_use.check(ALICE, PLACE)
    if eve_is_known:
        first_use.check(EVE, ELSEWHERE)
    before = known_peers.path.read_bytes()
    text = refused(first_use, name=PLACE)
    assert f"WARNING: THE NODE ID AT {PLACE} HAS CHANGED" in text
    assert f"Since 2026-03-04 it was {ALICE.node_id}" in text
    assert str(known_peers.path) in text
    assert known_peers.path.read_bytes() == before
    known_peers.forget(ALICE.node_id)
    first_use.check(EVE, PLACE)


def test_changed_id_raises_identity_changed_error(
    first_use: FirstUse, known_peers: KnownPeers
) -> None:
    first_use.check(ALICE, PLACE)
    for policy in (first_use, Known(known_peers)):
        with pytest.raises(IdentityChangedError) as caught:
            policy.check(EVE, PLACE)
        error = caught.value
        assert (error.name, error.old, error.new) == (PLACE, ALICE.node_id, EVE.node_id)
        assert (error.first_seen, error.path) == (NOW, known_peers.path)
        assert error.code == CloseCode.PEER_NOT_TRUSTED


def test_first_use_refuses_a_name_taken_meanwhile(known_peers: KnownPeers) -> None:
    others = KnownPeers(known_peers.path)

    def clock() -> datetime:  # called between reading and writing the file
        others.add(ALICE.node_id, PLACE, NOW)
        return NOW

    assert "HAS CHANGED" in refused(FirstUse(known_peers, clock), name=PLACE)
    assert [peer.node_id for peer in known_peers] == [ALICE.node_id]


def test_unreadable_file_trusts_no_peer(first_use: FirstUse, known_peers: KnownPeers) -> None:
    known_peers.path.write_text(f"{EVE.node_id} yesterday -\n")
    for policy in (first_use, Known(known_peers)):
        for name in (None, PLACE):
            assert f"{known_peers.path}, line 1" in refused(policy, name=name)


def test_first_use_does_not_trust_peers_it_cannot_record(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    policy = FirstUse(KnownPeers(tmp_path / "new" / "known_peers"), lambda: NOW)
    (tmp_path / "new").symlink_to(tmp_path / "file")
    assert "cannot" in refused(policy, name=PLACE)
    assert "invalid name" in refused(
        FirstUse(KnownPeers(tmp_path / "known_peers")), name="two words"
    )


def test_settings_name_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "known_peers"
    assert isinstance(parse_trust("any", path), AnyPeer)
    first_use, known = parse_trust("first-use", path), parse_trust("known", str(path))
    assert isinstance(first_use, FirstUse)
    assert isinstance(known, Known)
    assert first_use.known_peers.path == known.known_peers.path == path
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path / "home"))
    by_default = parse_trust("known")
    assert isinstance(by_default, Known)
    assert by_default.known_peers.path == default_known_peers()


def test_a_setting_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    KnownPeers(tmp_path / "friends.txt").add(ALICE.node_id, None, NOW)
    for text in (f"{tmp_path}/friends.txt", "friends.txt", "./friends.txt", "~/friends.txt"):
        policy = parse_trust(text, tmp_path / "known_peers")
        assert isinstance(policy, Known)
        policy.check(ALICE, None)
        refused(policy)


@pytest.mark.parametrize("text", ["", "all", "Any", "firstuse", "knwon", "/a\0b"])
def test_a_mistyped_setting_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected any, first-use, known, or the path"):
        parse_trust(text, tmp_path / "known_peers")
