"""Replays the two recorded sessions event by event, on the primitives alone.

Rule: nothing here is the library's own protocol code, so that a mistake shared by both of
its sides would show. The recordings hold no private key for the rekey's fresh shares: its
commitment is taken as given and checked through the chains and seals that cover it, and
what was encrypted after it (`AFTER_REKEY`) is chained and verified but cannot be opened.
"""

from dataclasses import dataclass, field

import pytest

from parley._crypto.chain import HashChain, check_seal
from parley._crypto.errors import DecryptError, SignatureError
from parley._crypto.identity import PublicIdentity
from parley._crypto.schedule import (
    chain_bind,
    chain_rekey,
    chain_start_initiator,
    chain_start_responder,
    check_network_mac,
    handshake_secrets,
    next_secret,
)
from parley._crypto.signing import Verifier
from parley._crypto.streamkeys import StreamKey
from parley._lbm.codec import decode, encode
from parley._lbm.keys import EPOCH, IDENTITY_KEYS, NETWORK_MAC, REKEY_NUMBER
from tests.crypto.recorded import HEAD_SIZE, RECORDED, OpenedEvent, RecordedSession

PROOF, SEAL, KEY_UPDATE, OFFER, ANSWER, CLOSE = (1, 3), (1, 8), (1, 9), (1, 10), (1, 11), (1, 12)
ALWAYS_SEALED = {PROOF, SEAL, KEY_UPDATE, OFFER, ANSWER, CLOSE}
SIDES = ("initiator", "responder")
AFTER_REKEY = 2

recorded = pytest.mark.parametrize("session", RECORDED, ids=lambda session: session.name)


class Refused(Exception):
    """What a reader calls `bad-record` or `seal-violation` before any cryptography."""


@dataclass
class Direction:
    """The events of one sender: secret, stream keys, chain, seals."""

    session: RecordedSession
    secret: bytes | None
    commit: bytes
    chain: HashChain
    verifier: Verifier | None = None
    keys: dict[int, StreamKey] = field(default_factory=dict)
    epoch: int = 0
    sealed: int = 0
    unsealed: int = 0

    def split(self, event: bytes) -> tuple[bytes, int, bytes, bytes, bytes]:
        """Return stream, form, chain bytes, seal and blob of an encrypted event."""
        size = self.session.suite.signing_algorithm.signature_size
        stream, rest = event[:4], event[4:]
        if self.session.suite.sealing == "each":
            return stream, 1, b"", rest[:size], rest[size:]
        form, shown, rest = rest[0], rest[1:17], rest[17:]
        if form not in (0, 1):
            raise Refused("form")
        return stream, form, shown, rest[: size * form], rest[size * form :]

    def read(self, event: bytes) -> OpenedEvent | None:
        """Open one event, chain it and verify its seal; None if its keys are not known."""
        stream, form, shown, seal, blob = self.split(event)
        opened = None
        if self.secret is not None:
            opened = self.decrypt(int.from_bytes(stream, "big"), stream + bytes((form,)), blob)
            if form == 0 and opened.type in ALWAYS_SEALED:
                raise Refused("unsealed")
        d = self.chain.advance(stream, blob)
        if shown and shown != d[:16]:
            raise Refused("chain")
        if opened is not None and opened.type == PROOF:
            self.verifier = self.identify(opened)
        if form:
            assert self.verifier is not None
            check_seal(self.verifier, self.session.hash, self.commit, d, seal)
            self.sealed += 1
        else:
            self.unsealed += 1
        return opened

    def decrypt(self, stream: int, aad: bytes, blob: bytes) -> OpenedEvent:
        assert self.secret is not None
        if stream not in self.keys:
            self.keys[stream] = StreamKey(self.session.suite, self.secret, stream)
        data = self.keys[stream].decrypt(blob, aad)
        # 'No payload' is one zero byte, except in 2/5 Data.
        payload = b"" if data[4:] == b"\x00" and data[2:4] != b"\x02\x05" else data[4:]
        return OpenedEvent(stream, int.from_bytes(data[:2], "big"), data[2], data[3], payload)

    def identify(self, proof: OpenedEvent) -> Verifier:
        identity = PublicIdentity.parse(decode(proof.payload)[IDENTITY_KEYS])
        return identity.verifier(self.session.suite.signing)

    def restart(self, secret: bytes | None) -> None:
        self.secret = secret
        self.keys.clear()


class Replay:
    """Both directions, from the Hello up to any event."""

    def __init__(self, session: RecordedSession) -> None:
        self.session = session
        hash = session.hash
        shared = session.suite.kex_algorithm.from_private(session.initiator_private).derive(
            session.share(1)
        )
        th1 = hash.digest(session.transcript(2))
        self.secrets = handshake_secrets(hash, th1, shared, session.network_key)
        commit = self.secrets.commit
        with_proof = hash.digest(session.transcript(3))
        self.directions = {
            "responder": Direction(
                session,
                self.secrets.hs_responder,
                commit,
                HashChain(hash, chain_start_responder(hash, th1, commit)),
            ),
            "initiator": Direction(
                session,
                self.secrets.hs_initiator,
                commit,
                HashChain(hash, chain_start_initiator(hash, with_proof, commit)),
            ),
        }

    def proofs(self) -> dict[str, OpenedEvent]:
        """Read both Proofs and go over to the application's keys."""
        proofs = {}
        for side, event in self.session.events[2:4]:
            opened = self.directions[side].read(event)
            assert opened is not None
            assert opened.type == PROOF
            proofs[side] = opened
        hash = self.session.hash
        th2 = hash.digest(self.session.transcript(4))
        application = self.secrets.application(th2)
        for side, secret in zip(
            SIDES, (application.ap_initiator, application.ap_responder), strict=True
        ):
            direction = self.directions[side]
            direction.chain.value = chain_bind(hash, direction.chain.value, th2)
            direction.restart(secret)
        return proofs

    def read(self, side: str, event: bytes) -> OpenedEvent | None:
        """Read one event after the Proofs, and follow a KeyUpdate."""
        direction = self.directions[side]
        opened = direction.read(event)
        if opened is not None and opened.type == KEY_UPDATE:
            cells = decode(opened.payload)
            direction.epoch += 1
            assert cells[EPOCH] == direction.epoch
            if REKEY_NUMBER in cells:
                direction.restart(None)
                direction.chain.value = chain_rekey(
                    self.session.hash, direction.chain.value, self.session.rekey_commitment
                )
            else:
                assert direction.secret is not None
                direction.restart(next_secret(self.session.hash, direction.secret))
        return opened


@recorded
def test_the_proofs_open_and_show_the_recorded_identities(session: RecordedSession) -> None:
    proofs = Replay(session).proofs()
    for side in SIDES:
        identity = PublicIdentity.parse(decode(proofs[side].payload)[IDENTITY_KEYS])
        assert identity.node_id == session.node_id(side)
        assert identity.verifier(session.suite.signing).public == session.public(side)


@recorded
def test_the_network_mac_of_the_hello(session: RecordedSession) -> None:
    cells = decode(session.events[0][1][HEAD_SIZE:], keep_noise=True)
    mac = cells.pop(NETWORK_MAC, None)
    if session.network_key is None:
        assert mac is None
    else:
        assert isinstance(mac, bytes)
        assert check_network_mac(session.network_key, encode(cells), mac)
        assert not check_network_mac(session.network_key, encode({**cells, 6: "x"}), mac)


@recorded
def test_every_event_opens_and_every_seal_verifies(session: RecordedSession) -> None:
    replay = Replay(session)
    replay.proofs()
    opened = [replay.read(side, event) for side, event in session.events[4:]]
    assert opened[:-AFTER_REKEY] == session.opened[:-AFTER_REKEY]
    assert opened[-AFTER_REKEY:] == [None] * AFTER_REKEY
    for side in SIDES:
        assert replay.directions[side].chain.value == session.final_chain(side)
    assert (replay.directions["initiator"].epoch, replay.directions["responder"].epoch) == (2, 1)
    sealed = sum(direction.sealed for direction in replay.directions.values())
    unsealed = sum(direction.unsealed for direction in replay.directions.values())
    assert sealed + unsealed == len(session.events) - 2
    assert (unsealed > 0) == (session.suite.sealing == "chain")


@recorded
def test_a_plain_key_update_restarts_every_stream(session: RecordedSession) -> None:
    replay = Replay(session)
    replay.proofs()
    initiator = replay.directions["initiator"]
    old: dict[int, StreamKey] = {}
    for side, event in session.events[4:]:
        if initiator.epoch == 1 and side == "initiator":
            # The first event of epoch 1 does not open under epoch 0, whatever the counter.
            stream, form, _, _, blob = initiator.split(event)
            for key in old.values():
                with pytest.raises(DecryptError):
                    key.decrypt(blob, stream + bytes((form,)))
            assert initiator.keys == {}
            break
        old = dict(initiator.keys)
        replay.read(side, event)
    assert old


@recorded
def test_no_bit_of_an_event_can_be_changed(session: RecordedSession) -> None:
    for index, (side, event) in enumerate(session.events[4:-AFTER_REKEY]):
        for position in {0, 4, 5, 20, 21, len(event) // 2, len(event) - 1}:
            replay = Replay(session)
            replay.proofs()
            for earlier in session.events[4 : 4 + index]:
                replay.read(*earlier)
            altered = bytearray(event)
            altered[position] ^= 1
            with pytest.raises((DecryptError, SignatureError, Refused)):
                replay.read(side, bytes(altered))


@recorded
def test_a_dropped_event_is_noticed(session: RecordedSession) -> None:
    replay = Replay(session)
    replay.proofs()
    side, event = session.events[4]
    later = next(e for s, e in session.events[5:] if s == side)
    with pytest.raises((DecryptError, SignatureError, Refused)):
        replay.read(side, later)
    replay = Replay(session)
    replay.proofs()
    replay.read(side, event)
    with pytest.raises(DecryptError):
        replay.read(side, event)


@recorded
def test_a_reflected_event_does_not_open(session: RecordedSession) -> None:
    replay = Replay(session)
    replay.proofs()
    side, event = session.events[4]
    other = next(name for name in SIDES if name != side)
    with pytest.raises(DecryptError):
        replay.read(other, event)


@recorded
def test_a_wrong_rekey_commitment_breaks_every_later_seal(session: RecordedSession) -> None:
    replay = Replay(session)
    replay.proofs()
    for side, event in session.events[4:-AFTER_REKEY]:
        replay.read(side, event)
    for side, event in session.events[-AFTER_REKEY:]:
        direction = replay.directions[side]
        wrong = chain_rekey(session.hash, direction.chain.value, bytes(session.hash.size))
        stream, _, _, seal, blob = direction.split(event)
        d = HashChain(session.hash, wrong).advance(stream, blob)
        assert direction.verifier is not None
        size = direction.verifier.signature_size
        with pytest.raises(SignatureError):
            check_seal(direction.verifier, session.hash, direction.commit, d, seal or bytes(size))
