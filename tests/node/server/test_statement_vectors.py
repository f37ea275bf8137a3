"""The vectors of key statements between members, from the second implementation of section 22."""

from datetime import UTC, datetime
from functools import partial

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.registry import SIGNING
from parley._crypto.statements import Statement
from parley._lbm import keys
from parley._node.federation.directory import Directory
from parley._node.protocol import codes
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event_types import HAVE, STATEMENTS
from parley._node.trust.key_statements import ABOVE_RATE, KeyStatements, Offer
from parley._node.trust.statement_table import IdsOnRecord
from tests.vectors.load import Vector, of_kind, read, unhex, vectors
from tests.vectors.load import codes as codes_of

FILE = "federation"
TABLE = read(FILE)["table"]
NOW_MS = int(TABLE["now_ms"])
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
OWN = Identity.from_keys([SIGNING["ed25519"].load(unhex(TABLE["own_seed"]))])
REASONS = {Offer.NOT_ON_RECORD: "not on record", Offer.FULL: "no room", ABOVE_RATE: "rate"}


class Server:
    """A server and its link with one member, with the work of the directory's driver."""

    def __init__(self, vector: Vector) -> None:
        members = [NodeId(unhex(one)) for one in vector["members"]]
        self.named = {OWN.node_id, *members}
        self.other = members[0]
        self.directory = Directory(OWN, members)
        self.statements = KeyStatements()
        self.ignored = 0
        self.store(*map(unhex, vector["stored"]))
        self.directory.link_up(self.other, 0, NOW_MS)
        self.slots = self.begin()

    def store(self, *statements: bytes) -> None:
        for one in statements:
            self.statements.apply(one)
        self.share()

    def share(self) -> None:
        shared = self.statements.table.of_members(self.named)
        self.directory.share_statements(shared, 0, NOW_MS)

    def begin(self) -> list[str]:
        """Open a stream; return the slots in Have."""
        self.directory.begin_exchange(self.other)
        event = self.directory.next_event(self.other, 0)
        assert event is not None
        return sorted(slot.hex() for slot in HAVE.read(event.payload)[keys.SLOTS])

    def play(self, steps: list[tuple[str, str]]) -> list[list[str]]:
        """Take all steps; return the slots that are sent after each."""
        return [self.step(kind, unhex(data)) for kind, data in steps]

    def step(self, kind: str, data: bytes) -> list[str]:
        """Take a step; return the slots that are sent."""
        if kind == "stream":
            self.begin()
        elif kind == "news":
            self.store(data)
        elif kind == "have":
            self.directory.receive(self.other, codes.HAVE, data, 0, NOW_MS)
        else:
            found = self.directory.receive_statements(self.other, data, 0)
            self.ignored += found is None
            records = IdsOnRecord(self.named.__contains__, lambda node_id: False)
            goes_on = partial(self.directory.count_wrong_signature, self.other, 0)
            self.statements.offer_all(found or (), records, NOW, goes_on)
            self.share()
        return sorted(self.sent())

    def dropped(self) -> list[str]:
        """Return why statements were dropped, sorted."""
        return sorted(REASONS.get(one, one) for one in self.statements.dropped.elements())

    def sent(self) -> list[str]:
        found = []
        while (event := self.directory.next_event(self.other, 0)) is not None:
            if event.subcategory == codes.STATEMENTS:
                statements = STATEMENTS.read(event.payload)[keys.STATEMENTS]
                found += [Statement.parse(one).slot.hex() for one in statements]
        return found


@vectors(FILE, of_kind("statements"))
def test_statements_of_a_member(vector: Vector) -> None:
    server = Server(vector)
    if "fails" in vector:
        with pytest.raises(RemoteProtocolError) as caught:
            server.play(vector["steps"])
        assert caught.value.code in codes_of(vector)
        return
    expected = vector["expected"]
    assert server.slots == expected["slots"]
    assert server.play(vector["steps"]) == expected["sent"]
    stored = server.statements.table.stored
    assert sorted(slot.hex() for slot in stored) == expected["stored"]
    assert server.dropped() == sorted(expected["dropped"])
    assert server.ignored == expected["ignored"]
