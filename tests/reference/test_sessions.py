"""The reference implementation against recorded sessions of another one, and its own vectors."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference import schedule, wire
from tests.reference.exchange import Offer
from tests.reference.handshake import network_mac
from tests.reference.identity import RemoteIdentity, read_identity
from tests.reference.sealing import Direction, Opened, Suite, masked, verify_seal
from tests.reference.wire import CELLS, TYPES, split_encrypted
from tests.vectors import build

VECTORS = Path(__file__).parent.parent / "vectors"
SIDES = ("initiator", "responder")
NAMES = ("session-default-suite", "session-each-p256-blake2b-chacha")


class Recording:
    """A session file: its bytes, and both directions up to the Proofs."""

    def __init__(self, name: str) -> None:
        self.json: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
        self.suite = Suite(**self.json["suite"])
        self.events = [(e["from"], bytes.fromhex(e["event"])) for e in self.json["events"]]
        self.secrets = {key: bytes.fromhex(text) for key, text in self.json["secrets"].items()}
        network_key = self.json["network_key"]
        self.network_key = bytes.fromhex(network_key) if network_key else None
        hello, reply, proof_r, proof_i = (event for _, event in self.events[:4])
        self.hello = wire.parse_raw(hello).cells()
        self.reply = wire.parse_raw(reply).cells()
        private = self.json["initiator"]
        self.offer = Offer(
            self.suite.kex,
            bytes.fromhex(private["x25519_private"]),
            bytes.fromhex(private.get("mlkem768_private_seed", "")),
        )
        self.shared = self.offer.complete(self.reply[CELLS["shares"]][self.suite.kex])
        self.keys = keys = schedule.handshake_keys(
            self.suite.hash, hello + reply, self.shared, self.network_key
        )
        self.ap = schedule.application_keys(keys, proof_r, proof_i)
        starts = {
            "responder": (keys.hs_responder, schedule.chain_start_responder(keys)),
            "initiator": (keys.hs_initiator, schedule.chain_start_initiator(keys, proof_r)),
        }
        self.identities: dict[str, RemoteIdentity] = {}
        self.directions: dict[str, Direction] = {}
        applications = dict(zip(SIDES, (self.ap.ap_initiator, self.ap.ap_responder), strict=True))
        for side, proof in (("responder", proof_r), ("initiator", proof_i)):
            reader = Direction(self.suite, *starts[side], keys.commit)
            opened = reader.read(proof)
            self.identities[side] = read_identity(opened.event.cells()[CELLS["keys"]])
            self.verify(side, opened)
            chain = schedule.chain_bind(self.suite.hash, reader.chain, self.ap.th2)
            self.directions[side] = Direction(self.suite, applications[side], chain, keys.commit)

    def verify(self, side: str, opened: Opened) -> None:
        """The seal, where the event has one."""
        if opened.form:
            verify_seal(self.suite, self.identities[side].keys[self.suite.signing], opened)

    def follow(self, side: str, event: bytes) -> Opened:
        """Steps the chain of an event whose keys are not known, and gives its signature."""
        direction = self.directions[side]
        stream, form, signed_hash, blob = split_encrypted(
            event, self.suite.sealing, self.suite.signing
        )
        direction.chain = schedule.chain_step(self.suite.hash, direction.chain, stream, blob)
        if self.suite.sealing == "chain":
            assert signed_hash[:16] == direction.chain[:16]
            signed_hash = signed_hash[16:]
        signature = masked(self.suite, self.keys.commit, direction.chain, signed_hash)
        unknown = wire.Event(stream, 0, 1, 1)
        return Opened(unknown, form, direction.chain, signature if form else b"")


@pytest.fixture(params=NAMES)
def recording(request: pytest.FixtureRequest) -> Recording:
    return Recording(request.param)


def test_the_key_schedule(recording: Recording) -> None:
    secrets, keys, ap = recording.secrets, recording.keys, recording.ap
    assert recording.hello[CELLS["shares"]] == {recording.suite.kex: recording.offer.share}
    assert recording.shared == secrets["shared_secret"]
    assert (keys.th1, keys.hs, keys.commit) == (secrets["th1"], secrets["hs"], secrets["commit"])
    assert keys.hs_initiator == secrets["hs_initiator"]
    assert keys.hs_responder == secrets["hs_responder"]
    assert ap.ap_initiator == secrets["ap_initiator_0"]
    assert ap.ap_responder == secrets["ap_responder_0"]
    assert ap.session_id == secrets["session_id"]
    assert ap.exporter == secrets["exporter"]
    assert ap.rekey == secrets["rekey"]


def test_the_network_mac(recording: Recording) -> None:
    sent = recording.hello.get(CELLS["mac"])
    key = recording.network_key
    assert sent == (network_mac(key, recording.hello) if key else None)


def test_the_node_ids(recording: Recording) -> None:
    found = {side: identity.id.hex() for side, identity in recording.identities.items()}
    assert found == recording.json["node_ids"]


def test_every_event_opens_until_the_rekey_and_every_seal_holds(recording: Recording) -> None:
    rcommit = bytes.fromhex(recording.json["rekey_commitment"])
    expected = recording.json["opened_application_events"]
    rekeyed: set[str] = set()
    opened_count = 0
    assert len(expected) == len(recording.events[4:])
    for (side, data), wanted in zip(recording.events[4:], expected, strict=True):
        direction = recording.directions[side]
        if side in rekeyed:
            # The rekey's private keys are not recorded, but chain and seals don't need them.
            recording.verify(side, recording.follow(side, data))
            continue
        opened = direction.read(data)
        recording.verify(side, opened)
        event = opened.event
        opened_count += 1
        assert {
            "stream": event.stream,
            "async_id": event.async_id,
            "category": event.category,
            "subcategory": event.subcategory,
            "payload": event.payload.hex(),
        } == wanted
        if event.type != TYPES["KeyUpdate"]:
            continue
        cells = event.cells()
        assert cells[CELLS["epoch"]] == direction.epoch + 1
        direction.replace(schedule.updated(recording.suite.hash, direction.secret))
        if CELLS["rekey"] in cells:
            rekeyed.add(side)
            direction.chain = schedule.chain_rekey(recording.suite.hash, direction.chain, rcommit)
    assert rekeyed == set(SIDES)
    assert opened_count == 12
    final = recording.json["final_chain"]
    assert {
        "initiator_to_responder": recording.directions["initiator"].chain.hex(),
        "responder_to_initiator": recording.directions["responder"].chain.hex(),
    } == final


@pytest.mark.slow
def test_the_vectors_are_those_that_this_implementation_makes() -> None:
    assert build.main(["--check"]) == 0
