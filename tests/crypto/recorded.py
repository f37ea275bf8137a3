"""The two recorded sessions of another implementation, as objects.

Rule: a plain reading of the files in tests/vectors, checked against nothing but its own
shape; what the bytes must mean is the business of the tests that use it.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from parley._crypto.hashing import HashAlgorithm
from parley._crypto.registry import HASHES, Suite
from parley._lbm.codec import decode
from parley._lbm.keys import SHARES

_VECTORS = Path(__file__).parents[1] / "vectors"
HEAD_SIZE = 8  # stream, async id, category, subcategory of an unencrypted event


@dataclass(frozen=True)
class OpenedEvent:
    """What an encrypted event said, as the recording states it."""

    stream: int
    async_id: int
    category: int
    subcategory: int
    payload: bytes

    @property
    def type(self) -> tuple[int, int]:
        """Category and subcategory."""
        return self.category, self.subcategory


@dataclass(frozen=True)
class RecordedSession:
    """One file of tests/vectors."""

    name: str
    data: dict[str, Any]

    @cached_property
    def suite(self) -> Suite:
        return Suite(**self.data["suite"])

    @property
    def hash(self) -> HashAlgorithm:
        return HASHES[self.suite.hash]

    @cached_property
    def events(self) -> list[tuple[str, bytes]]:
        """Sender ("initiator" or "responder") and bytes of each event."""
        return [(e["from"], bytes.fromhex(e["event"])) for e in self.data["events"]]

    @cached_property
    def opened(self) -> list[OpenedEvent]:
        return [
            OpenedEvent(**{**e, "payload": bytes.fromhex(e["payload"])})
            for e in self.data["opened_application_events"]
        ]

    @property
    def network_key(self) -> bytes | None:
        key = self.data["network_key"]
        return None if key is None else bytes.fromhex(key)

    @property
    def rekey_commitment(self) -> bytes:
        return bytes.fromhex(self.data["rekey_commitment"])

    @property
    def initiator_private(self) -> bytes:
        """The initiator's ephemeral key, in the form that `KexAlgorithm.from_private` takes."""
        side = self.data["initiator"]
        return bytes.fromhex(side.get("mlkem768_private_seed", "") + side["x25519_private"])

    def secret(self, name: str) -> bytes:
        return bytes.fromhex(self.data["secrets"][name])

    def public(self, side: str) -> bytes:
        return bytes.fromhex(self.data[side]["signing_public"])

    def node_id(self, side: str) -> bytes:
        return bytes.fromhex(self.data["node_ids"][side])

    def final_chain(self, side: str) -> bytes:
        other = {"initiator": "responder", "responder": "initiator"}[side]
        return bytes.fromhex(self.data["final_chain"][f"{side}_to_{other}"])

    def share(self, index: int) -> bytes:
        """The key share in Hello (0) or Reply (1)."""
        shares = decode(self.events[index][1][HEAD_SIZE:])[SHARES]
        assert isinstance(shares, dict)
        share = shares[self.suite.kex]
        assert isinstance(share, bytes)
        return share

    def transcript(self, count: int) -> bytes:
        """The first `count` events, one after the other."""
        return b"".join(event for _, event in self.events[:count])


def _load(path: Path) -> RecordedSession:
    return RecordedSession(path.stem, json.loads(path.read_text("utf-8")))


RECORDED = [_load(path) for path in sorted(_VECTORS.glob("session-*.json"))]
