"""The audit reads journals that the reference implementation wrote from both documents.

Events, chains, secrets and records come from the reference; only the boxes are encrypted by this
implementation. The connections are those of the test vectors.
"""

from typing import Any

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import NodeId
from parley._node.journal.audit import Audit
from parley._node.journal.audit.rows import EVENT_COLUMNS
from parley._node.journal.records import Record, read_records
from tests.reference import journal, schedule
from tests.reference.batches import batch_of, meant
from tests.reference.exchange import Offer
from tests.reference.identity import Identity
from tests.reference.journal import KINDS, Fields
from tests.reference.recorded import RECORDS, recorded_answer, seed
from tests.reference.vectors_connection import SIDES, SUITES, Play
from tests.reference.wire import TYPES, Event, cells_payload

AUDITOR = AuditorPrivateKey.create()
TIME = 1_767_225_600_000_000_000
HEAD = ("stream", "async_id", "category", "subcategory")
BATCH = batch_of(
    [
        Event(3, 9, *TYPES["Call"], cells_payload(topic="parley.echo")),
        Event(3, 0, 64, 1),
        Event(3, 0, *TYPES["Notify"], cells_payload(data=b"a note")),
    ]
)
NULLS = {"after_offer": None, "after_answer": None, "rekey_commit": None}


@pytest.fixture(autouse=True)
def records_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep records signed here out of the vectors, which list everything that was used."""
    monkeypatch.setattr(RECORDS, "_used", dict(RECORDS._used))


class Journaled(Play):
    """A connection of the reference, with the journal that `local` would write about it."""

    def __init__(self, suite: str, local: str) -> None:
        self.local = local
        self.data = b""
        self.places = dict.fromkeys(SIDES, 0)
        self.unsealed = dict.fromkeys(SIDES, 0)
        self.updates = dict.fromkeys(SIDES, 0)
        self.generations = dict.fromkeys(SIDES, 0)
        self.blocks = 0
        self.values: list[bytes] = []  # After offer, after answer.
        super().__init__(*SUITES[suite])
        *hello, proof_r, proof_i = [event for _, event in self.events]
        names = self.suite.kex, self.suite.signing, self.suite.hash
        cells = {side: [[self.suite.signing, self.keys[side].public, None]] for side in SIDES}
        remote = SIDES[local == "initiator"]
        self.facts: Fields = {
            "session_id": self.ap.session_id,
            "initiator": local == "initiator",
            "local_keys": cells[local],
            "remote_keys": cells[remote],
            "local_role": "peer",
            "remote_role": "peer",
            "address": "memory",
            "suite": [*names, self.suite.cipher, self.suite.sealing],
            "commit": self.hs.commit,
            "seal_events": 64,
            "seal_delay": 20,
        }
        boxes = [[bytes(AUDITOR.public), AUDITOR.public.seal(self.hs.hs)]]
        self.secrets: list[Fields] = [{"generation": 0, **NULLS, "boxes": boxes}]
        head = {"format": "parley1 journal", "version": 1, "start": TIME, "number": 0}
        node_id = Identity((self.keys[local],)).id
        self.stem = f"{NodeId(node_id).text}-{journal.start_text(TIME)}-00000000"
        rest = {"node_id": node_id, "auditors": [bytes(AUDITOR.public)], "software": "reference"}
        self.record("segment", head | rest)
        self.block(live=0)
        proofs = {"responder_proof": proof_r, "initiator_proof": proof_i}
        self.record("session start", {**self.facts, "t1": b"".join(hello), **proofs})
        self.record("secret", {"generation": 0, "boxes": boxes})

    def record(self, kind: str, fields: Fields) -> None:
        body = journal.body(kind, {"session": 0, **fields})
        self.data += journal.record(KINDS[kind], TIME, body)

    def block(self, live: int = 1) -> None:
        """Write a block, and the checkpoint of the session."""
        self.blocks += 1
        self.record("block", {"number": self.blocks - 1, "live": live})
        if live:
            remote = SIDES[self.local == "initiator"]
            states = {
                "th1": self.hs.th1,
                "th2": self.ap.th2,
                "started": TIME,
                "directions": [self.state(remote), self.state(self.local)],
                "secrets": self.secrets,
            }
            self.record("checkpoint", self.facts | states)

    def state(self, side: str) -> Fields:
        direction = self.directions[side]
        return {
            "chain": direction.chain,
            "place": self.places[side],
            "epoch": direction.epoch,
            "generation": self.generations[side],
            "updates": self.updates[side],
            "unsealed": self.unsealed[side],
            "counters": [list(counter) for counter in direction.counters.items()],
        }

    def send(self, side: str, name: str, stream: int, async_id: int = 0, /, **cells: Any) -> bytes:
        chain = super().send(side, name, stream, async_id, **cells)
        self.places[side] += 1
        self.unsealed[side] = 0 if self.opened[-1]["sealed"] else self.unsealed[side] + 1
        if name == "KeyUpdate" and "rekey" in cells and len(self.secrets) == 1:
            self.secret()
        direction = int(side == self.local)
        self.record("event", {"direction": direction, "wire": self.events[-1][1]})
        if name in ("RekeyOffer", "RekeyAnswer"):
            self.values.append(chain)
        if name == "KeyUpdate":
            fields = {"direction": direction, "epoch": cells["epoch"]}
            if "rekey" in cells:
                self.generations[side], self.updates[side] = 1, 0
                fields |= {key: item for key, item in self.secrets[1].items() if key != "boxes"}
            else:
                self.updates[side] += 1
            self.record("key update", fields)
        return chain

    def secret(self) -> None:
        """Write the secret of the rekey, including its two values."""
        a, b = self.values
        offer = Offer(self.suite.kex, seed("rekey x25519"), seed("rekey d") + seed("rekey z"))
        _, shared = recorded_answer(offer, seed("rekey answer x25519"))
        keys = schedule.rekey_keys(self.suite.hash, self.ap.rekey, shared, a, b)
        boxes = [[bytes(AUDITOR.public), AUDITOR.public.seal(keys.root)]]
        values = {"after_offer": a, "after_answer": b, "rekey_commit": keys.rcommit}
        self.secrets.append({"generation": 1, **values, "boxes": boxes})
        self.record("secret", {"generation": 1, "boxes": boxes})

    def end(self) -> None:
        remote = SIDES[self.local == "initiator"]
        both = (remote, self.local)
        fields = {
            "code": 0,
            "remote": self.local != "initiator",
            "chains": [self.directions[side].chain for side in both],
            "places": [self.places[side] for side in both],
        }
        self.record("session end", fields)
        records = list(journal.records(self.data))
        blocks = [record["offset"] for record in records if record["kind"] == KINDS["block"]]
        body = journal.body("segment end", {"records": len(records), "blocks": blocks})
        self.data += journal.record(KINDS["segment end"], TIME, body)


def played(suite: str, local: str) -> Journaled:
    """Replay a connection of the vectors, with a block at a different position each time."""
    play = Journaled(suite, local)
    play.send("initiator", "Call", 1, 7, topic="parley.echo", data="hello")
    play.block()
    play.send("responder", "Result", 1, 7, code=0, data="hello")
    play.send("initiator", "Open", 3, label="app/test")
    play.send("initiator", "Batch", 3, bytes=BATCH.payload)
    play.send("responder", "Batch", 1, bytes=BATCH.payload[:-1])  # No row, although it is sealed.
    play.update("initiator")
    play.block()
    play.send("initiator", "Finish", 3)
    play.rekey("responder" if SUITES[suite][2] else "initiator")
    play.block()
    play.send("initiator", "Call", 1, 8, topic="parley.info")
    play.send("responder", "Result", 1, 8, code=0)
    play.update("responder")
    play.send("responder", "Result", 1, 8, code=0)
    play.block()
    play.send("initiator", "Close", 0, code=0)
    play.end()
    return play


def audited(
    play: Journaled, records: list[Record], *auditors: AuditorPrivateKey
) -> list[dict[str, Any]]:
    """Return the rows of events; there must be no findings."""
    audit = Audit(auditors)
    for record in records:
        audit.record(play.stem, record)
    audit.finish_pending()
    assert audit.take_findings() == []
    return [dict(zip(EVENT_COLUMNS, row, strict=True)) for row in audit.take_events()]


@pytest.mark.parametrize("local", SIDES)
@pytest.mark.parametrize("suite", SUITES)
def test_every_event_is_verified_and_read(suite: str, local: str) -> None:
    play = played(suite, local)
    records = list(read_records(play.data))
    rows = audited(play, records, AUDITOR)
    for side in SIDES:
        way = "sent" if side == local else "received"
        found = sorted((row for row in rows if row["direction"] == way), key=lambda r: r["place"])
        assert sorted({row["place"] for row in found}) == list(range(play.places[side] + 1))
        assert found[0]["type"] == "proof"
        sent = [opened for opened in play.opened if opened["from"] == side]
        for place, opened in enumerate(sent, 1):
            head = {name: opened[name] for name in HEAD}
            event = Event(**head, payload=bytes.fromhex(opened["payload"]))
            reported = [row for row in found if row["place"] == place]
            insides = [row["inside"] for row in reported]
            assert insides == ([None] if len(reported) == 1 else list(range(len(reported))))
            for row, one in zip(reported, meant(event), strict=True):
                assert [row[name] for name in HEAD] == [getattr(one, name) for name in HEAD]
                assert row["payload"] == (one.payload or b"\0")
    # The responder's last Result is sealed, as is the initiator's Close.
    assert [row["type"] for row in rows if row["status"] != "ok"] == ["batch"]
    assert {row["status"] for row in rows} == {"ok", "malformed"}
    for row in audited(play, records):
        assert (row["status"], row["payload"], row["inside"]) == ("ok", None, None)
