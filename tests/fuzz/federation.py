"""Target `federation`: a server's processing of cards, key statements, Dials and Logins matches the
reference.

The input is a byte for the reader and, depending on it, an envelope; events of a neighbour (a byte
for the subcategory, two for the size, the payload); a Dial after a byte for the server and one for
the neighbour; or a Login.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from parley._crypto.identity import Identity, NodeId
from parley._crypto.signing import ED25519
from parley._crypto.statements import Statement
from parley._lbm import keys
from parley._node.federation.accounts import Accounts
from parley._node.federation.cards import read_card
from parley._node.federation.dials import DeliverLocally, Dials, Forward, Originate, Refuse
from parley._node.federation.directory import Directory
from parley._node.protocol import codes
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event_types import CARDS, HAVE, LOGIN, STATEMENTS
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.statement_table import IdsOnRecord
from tests.fuzz.allowed import ALLOWED
from tests.reference import dialling, envelopes, vectors_sharing
from tests.reference.dialling import DialRefused, GoesOn, Situation
from tests.reference.envelopes import CardTable, Dropped, ReadCard
from tests.reference.flooding import Flooding
from tests.reference.sharing import Sharing
from tests.reference.vectors_cards import KEYS, MEMBERS, NOW, OTHER, OWN, OWN_NUMBER
from tests.reference.vectors_federation import NODES
from tests.reference.wire import Violation

MAX_SIZE: Final = 2048
TYPES: Final = (codes.HAVE, codes.CARDS, codes.STATEMENTS)
# A member that statements are about.
ENDED: Final = vectors_sharing.ENDED
ENVELOPE, EVENTS, DIAL, LOGGING_IN = range(4)
SITUATIONS: Final = tuple(node for node in NODES.values() if not node.homes)
# All possible senders of a Dial: every node in the situation, and an unknown one.
NEIGHBOURS: Final = tuple(bytes([number]) * 32 for number in range(1, 27))
_ALLOWED: Final = ALLOWED["federation"]
_IDENTITY: Final = Identity.from_keys([ED25519.load(KEYS[0].seed)])


def fuzz(data: bytes) -> None:
    """Read it by both."""
    READERS[data[0] % len(READERS) if data else 0](data[1:])


def _read_envelope(data: bytes) -> None:
    wanted: ReadCard | None = None
    with suppress(Dropped):
        wanted, _ = envelopes.read_card(data)
    try:
        card = read_card(data)
    except _ALLOWED:
        assert wanted is None, "the second implementation reads it"
        return
    assert wanted is not None, "the second implementation does not read it"
    assert (card.origin, card.number, card.encoded) == (wanted.origin, wanted.number, data)
    life = (card.envelope.made_ms, card.envelope.expires_ms)
    assert life == (wanted.made_ms, wanted.expires_ms)
    assert dict(card.links) == wanted.links
    assert [[*card.exports], [*card.addresses]] == [wanted.exports, wanted.addresses]


def _take_events(data: bytes) -> None:
    members = {*MEMBERS, ENDED}
    directory = Directory(_IDENTITY, map(NodeId, members))
    neighbour = NodeId(OTHER)
    directory.link_up(neighbour, 0, OWN_NUMBER)
    directory.begin_exchange(neighbour)
    own = directory.cards[_IDENTITY.node_id]
    table, sharing = CardTable(OWN, members, OWN_NUMBER), Sharing({OWN, *members})
    flooding = Flooding(table, {OWN: (own.number, own.encoded)}, sharing)
    stored = Stored(directory, {OWN, *members})
    event = directory.next_event(neighbour, 0)
    assert event is not None
    have = HAVE.read(event.payload)[keys.HAVE]
    assert have == [[one, number] for one, number in flooding.have()]
    for turn, (subcategory, payload) in enumerate(_cut(data)):
        now, flooding.shared = 5.0 * turn, set()
        sharing.wait(5.0)
        try:
            wanted = flooding.receive(subcategory, payload, NOW)
        except Violation:
            wanted = None
        try:
            if subcategory == codes.STATEMENTS:
                stored.receive(neighbour, payload, now)
            else:
                directory.receive(neighbour, subcategory, payload, 0, NOW)
        except RemoteProtocolError:
            assert wanted is None, "the second implementation takes it"
            return
        assert wanted is not None, "the second implementation resets the stream"
        assert _sent(directory, neighbour, now) == (wanted, flooding.shared)
        numbers = {one: card.number for one, card in directory.cards.items() if one != OWN}
        assert numbers == table.numbers
        assert stored.statements.table.stored.keys() == sharing.stored.keys()


def _cut(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The events of the stream by their first byte, since no other type comes so far."""
    while len(data) > 3:
        size = int.from_bytes(data[1:3])
        yield TYPES[data[0] % len(TYPES)], data[3 : 3 + size]
        data = data[3 + size :]


def _sent(directory: Directory, neighbour: NodeId, now: float) -> tuple[set[bytes], set[bytes]]:
    """The origins of the cards and the slots of the statements that are sent."""
    found: set[bytes] = set()
    slots: set[bytes] = set()
    while (event := directory.next_event(neighbour, now)) is not None:
        if event.subcategory == codes.STATEMENTS:
            statements = STATEMENTS.read(event.payload)[keys.STATEMENTS]
            slots |= {Statement.parse(one).slot for one in statements}
        else:
            found |= {read_card(one).origin for one in CARDS.read(event.payload)[keys.ENVELOPES]}
    return found, slots


class Stored:
    """The statements of a server, which are shared by `directory`; `named` are on record."""

    def __init__(self, directory: Directory, named: set[bytes]) -> None:
        self.statements = KeyStatements()
        self._directory = directory
        self._named = [NodeId(one) for one in named]
        self._records = IdsOnRecord(named.__contains__, lambda node_id: False)

    def receive(self, neighbour: NodeId, payload: bytes, now: float) -> None:
        """Handle an event as the driver of a directory does; raises RemoteProtocolError."""
        found = self._directory.receive_statements(neighbour, payload, now) or ()
        goes_on = partial(self._directory.count_wrong_signature, neighbour, now)
        self.statements.offer_all(found, self._records, datetime.now(UTC), goes_on)
        shared = self.statements.table.of_members(self._named)
        self._directory.share_statements(shared, 0, NOW)


def _accounts(node: Situation) -> Accounts[object]:
    may = None if node.accounts is None else frozenset(map(NodeId, node.accounts))
    servers = frozenset(map(NodeId, node.linked | node.members))
    accounts: Accounts[object] = Accounts(may, servers)
    accounts.change(may, frozenset(map(NodeId, node.ended)))
    for one in node.logged_in:
        accounts.login(NodeId(one), object())
    return accounts


class _Here:
    """The accounts of a situation, as `Dials` asks about them."""

    def __init__(self, node: Situation) -> None:
        self._accounts = _accounts(node)

    def has_account(self, node_id: NodeId) -> bool:
        """Return the accounts; a server doesn't have any."""
        return self._accounts.may(node_id)

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Return an empty set of suspended nodes."""
        return self._accounts.session(node_id) is not None


def _judge(data: bytes) -> None:
    if len(data) < 2:
        return
    node = SITUATIONS[data[0] % len(SITUATIONS)]
    neighbour, payload = NEIGHBOURS[data[1] % len(NEIGHBOURS)], data[2:]
    own, members, linked, carry = (
        NodeId(node.own),
        *(frozenset(map(NodeId, ids)) for ids in (node.members, node.linked, node.carry)),
    )
    ended = node.ended.__contains__
    dials = Dials(own, members, linked, carry, _Here(node), has_ended=ended)
    decision = dials.judge(NodeId(neighbour), payload, 0)
    wanted = _wanted(node, neighbour, payload)
    if not isinstance(wanted, DialRefused):
        _compare(decision, wanted)
    elif isinstance(decision, Originate):
        # To find that no way is there is another part's affair.
        assert (wanted.code, wanted.hop) in ((28, 0), (17, 0))
    else:
        assert isinstance(decision, Refuse), decision
        assert decision.code == wanted.code
        assert wanted.hop in (None, decision.hop)


def _wanted(node: Situation, neighbour: bytes, payload: bytes) -> GoesOn | DialRefused | None:
    try:
        return dialling.take_dial(node, neighbour, payload, 0)
    except DialRefused as refused:
        return refused


def _compare(decision: Any, wanted: GoesOn | None) -> None:
    if wanted is None:
        assert isinstance(decision, DeliverLocally), decision
    elif isinstance(decision, Originate):
        assert (decision.to[-1], decision.trace) == (wanted.path[-1], wanted.trace)
    else:
        assert isinstance(decision, Forward), decision
        assert (decision.path, decision.after) == (tuple(wanted.path), wanted.to)
        assert decision.trace == wanted.trace
        assert round(decision.deadline * 1000) == wanted.deadline_ms


def _log_in(data: bytes) -> None:
    node = SITUATIONS[0]
    account = min(node.logged_in)
    code = dialling.answer_login(node, account, data, encrypted=True, tunnelled=False)
    try:
        LOGIN.read(data)
    except _ALLOWED:
        assert code == dialling.MALFORMED
    else:
        assert code == 0


READERS: Final[tuple[Callable[[bytes], None], ...]] = (
    _read_envelope,
    _take_events,
    _judge,
    _log_in,
)
