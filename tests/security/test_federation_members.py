"""What a hostile member of a federation can make other servers believe and do, with cards and
Dials.

See docs/threat-model.md, F5 to F8. The servers are real cores without I/O; the attacker sends
arbitrary events.
"""

from collections.abc import Sequence
from random import Random  # noqa: TID251 - lies, the same for a number

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.signing import ED25519
from parley._lbm import keys
from parley._lbm.codec import decode, encode
from parley._node.federation.cards import Card, CardRefusal, sign_card
from parley._node.federation.dials import Forward, Refuse, encode_dial
from parley._node.federation.directory import Directory
from parley._node.federation.envelopes import Envelope
from parley._node.federation.limits import (
    CARDS_OF_ORIGIN,
    DIALS_OF_LINK,
    LINK_REMEMBERED,
    TUNNELS_OF_LINK,
)
from parley._node.protocol import codes
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event_types import CARDS

NOW = 1_800_000_000_000
IDENTITIES = [Identity.from_keys([ED25519.load(bytes([n]) * 32)]) for n in range(1, 9)]
IDS = [identity.node_id for identity in IDENTITIES]
OURS, LIAR, VICTIM, OTHER = IDS[:4]
TRACE = bytes(16)


class Server:
    """A server that has all others as members and a link to each; a Have has arrived on each
    link.
    """

    def __init__(self, own: int = 0, carry: Sequence[NodeId] = ()) -> None:
        self.directory = Directory(IDENTITIES[own], IDS, carry=carry)
        for one in self.directory.members:
            self.directory.link_up(one, 0, NOW)
            self.directory.begin_exchange(one)
            self.directory.receive(one, codes.HAVE, encode({keys.HAVE: []}), 0, NOW)
            self.sent(one)

    def hear(self, *cards: bytes, now: float = 0, of: NodeId = LIAR) -> None:
        payload = encode({keys.ENVELOPES: list(cards)})
        self.directory.receive(of, codes.CARDS, payload, now, NOW + int(now * 1000))

    def sent(self, to: NodeId) -> int:
        """Return the number of cards that are being sent to a neighbour."""
        count = 0
        while (event := self.directory.next_event(to, 0)) is not None:
            if event.subcategory == codes.CARDS:
                count += len(CARDS.read(event.payload)[keys.ENVELOPES])
        return count

    def believed(self, of: NodeId) -> Card | None:
        return self.directory.cards.get(of)


def card(of: int, number: int = NOW, links: Sequence[NodeId] = (), made_ms: int = NOW) -> bytes:
    """Return a card signed with a server's key that offers to carry traffic for all servers it
    lists.
    """
    listed = dict.fromkeys(links, True)
    return sign_card(IDENTITIES[of], number=number, made_ms=made_ms, links=listed)


def forged(number: int) -> bytes:
    """Return a card in the victim's name with the attacker's signature."""
    outer = decode(card(2, number))
    return encode({**outer, keys.SIGNATURE: IDENTITIES[1].keys[0].sign(b"anything")})


def test_nobody_makes_a_card_in_the_name_of_another() -> None:
    server = Server()
    server.hear(card(2, 5, [OURS]), of=VICTIM)
    with pytest.raises(RemoteProtocolError):
        server.hear(forged(2**64 - 1))
    believed = server.believed(VICTIM)
    assert believed is not None
    assert believed.number == 5
    # The stream has ended, but not the link; the true card still arrives and is forwarded.
    assert LIAR in server.directory.links
    server.sent(OTHER)
    server.hear(card(2, 6, [OURS]), of=VICTIM)
    assert server.sent(OTHER) == 1


def test_an_old_card_does_not_come_back() -> None:
    server = Server()
    old, new = card(2, 5, [OURS, LIAR]), card(2, 6, [OURS])
    server.hear(old, new, of=VICTIM)
    server.hear(old)
    believed = server.believed(VICTIM)
    assert believed is not None
    assert believed.number == 6
    # Not even after the new one has expired, while the old one may still be valid.
    hour = 3_600.0
    server.directory.handle_deadline(hour + 1, NOW + 3_601_000)
    assert server.believed(VICTIM) is None
    server.hear(old, now=hour + 1)
    assert server.believed(VICTIM) is None


def test_strangers_cost_a_look_up_each(monkeypatch: pytest.MonkeyPatch) -> None:
    server, verified = Server(), []
    verify = Envelope.verify

    def counting(self: Envelope, other: Envelope | None = None) -> None:
        verified.append(self)
        verify(self, other)

    monkeypatch.setattr(Envelope, "verify", counting)
    strangers = [Identity.from_keys([ED25519.load(bytes([n]) * 32)]) for n in range(100, 140)]
    for stranger in strangers:
        server.hear(sign_card(stranger, number=NOW, made_ms=NOW, links={OURS: True}))
    assert verified == []
    assert server.directory.cards.refused[CardRefusal.NOT_A_MEMBER] == len(strangers)
    assert server.sent(OTHER) == 0
    server.hear(card(1))
    assert verified


def test_whoever_makes_cards_without_end_is_passed_on_at_their_rate() -> None:
    server = Server()
    burst = int(CARDS_OF_ORIGIN.burst)
    sent = 0
    for number in range(1, 301):
        server.hear(card(1, number, [IDS[number % 2 * 2]]))
        sent += server.sent(OTHER)
    assert sent == burst
    # Of the cards above the rate, only the newest is processed, when the rate permits it.
    now = CARDS_OF_ORIGIN.seconds
    server.directory.handle_deadline(now, NOW + int(now * 1000))
    believed = server.believed(LIAR)
    assert believed is not None
    assert believed.number == 300
    # In addition, the server's own card is renewed, because links were added.
    assert server.sent(OTHER) <= 2
    # Cards of other servers don't wait for it.
    server.hear(card(2), of=VICTIM)
    assert server.believed(VICTIM) is not None


def test_a_number_without_end_harms_its_maker_alone() -> None:
    """The number is in the attacker's own card, or in its Have about any card."""
    server = Server()
    server.directory.begin_exchange(LIAR)
    lie = [[one, 2**64 - 1] for one in IDS]
    server.directory.receive(LIAR, codes.HAVE, encode({keys.HAVE: lie}), 0, NOW)
    server.hear(card(1, 2**64 - 1), of=OTHER)
    server.hear(card(2), of=VICTIM)
    assert server.believed(VICTIM) is not None
    assert server.sent(LIAR) == 0
    assert server.sent(IDS[4]) == 2


def test_an_edge_takes_both_its_ends() -> None:
    """An attacker alone can't attract traffic of servers that it has no link to."""
    target = NodeId(IDS[7])
    server = Directory(IDENTITIES[0], IDS)
    for one in (LIAR, VICTIM):
        server.link_up(one, 0, NOW)
        server.begin_exchange(one)
        server.receive(one, codes.HAVE, encode({keys.HAVE: []}), 0, NOW)

    def say(of: int, number: int, links: Sequence[NodeId]) -> None:
        payload = encode({keys.ENVELOPES: [card(of, number, links)]})
        server.receive(IDS[of], codes.CARDS, payload, 0, NOW)

    say(1, 1, IDS)
    say(2, 1, [OURS, IDS[4]])
    payload = encode({keys.ENVELOPES: [card(4, 1, [VICTIM, target]), card(7, 1, [IDS[4]])]})
    server.receive(VICTIM, codes.CARDS, payload, 0, NOW)
    assert server.path([target]) == (OURS, VICTIM, IDS[4], target)
    # A link that is not open is not a route, whatever the cards claim.
    server.link_down(LIAR, 1, NOW + 1_000)
    assert server.path([LIAR]) is None
    server.handle_deadline(LINK_REMEMBERED + 2, NOW + 62_000)


def test_what_is_no_card_counts_and_costs_no_stream() -> None:
    server = Server()
    random = Random(5)
    whole = card(1)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            server.hear(bytes(data))
        except RemoteProtocolError:
            server.directory.begin_exchange(LIAR)
            server.directory.receive(LIAR, codes.HAVE, encode({keys.HAVE: []}), 0, NOW)
    believed = server.believed(LIAR)
    assert believed is None or believed.encoded == whole


def test_no_dial_comes_by_a_server_twice() -> None:
    """Every server is linked with every other and carries for all: the worst case."""
    servers = {IDS[n]: Server(n, carry=IDS) for n in range(len(IDS))}
    random = Random(3)
    goes_on = 0
    for turn in range(2_000):
        path = tuple(random.choice(IDS) for _ in range(random.randrange(2, 9)))
        before, at, visited = path[0], path[1], [path[0]]
        while True:
            visited.append(at)
            payload = encode_dial(TRACE, 30, path=path)
            decision = servers[at].directory.dials.judge(before, payload, turn)
            if not isinstance(decision, Forward):
                break
            goes_on += 1
            before, at = at, decision.after
        # Only a server that writes an ID twice itself is rejected for its own path.
        assert len(visited) <= 8
        assert len(set(visited)) == len(visited) or len(visited) == 2
    assert goes_on > 500


def test_a_flood_of_dials_is_answered_and_costs_others_nothing() -> None:
    server = Server(carry=[LIAR, VICTIM])
    dials = server.directory.dials
    payload = encode_dial(TRACE, 30, path=(LIAR, OURS, OTHER))
    first = [dials.judge(LIAR, payload, 0) for _ in range(int(DIALS_OF_LINK.burst) + 100)]
    refused = [one for one in first if isinstance(one, Refuse)]
    assert len(refused) == 100
    assert {one.code for one in refused} == {ResultCode.OVERLOADED}
    assert LIAR in server.directory.links
    honest = encode_dial(TRACE, 30, path=(VICTIM, OURS, OTHER))
    assert isinstance(dials.judge(VICTIM, honest, 0), Forward)


def test_tunnels_that_one_holds_are_counted_at_both_its_neighbours() -> None:
    server = Server(carry=[LIAR, VICTIM])
    dials = server.directory.dials
    for _ in range(TUNNELS_OF_LINK):
        dials.begin(LIAR, OTHER)
    further = dials.judge(LIAR, encode_dial(TRACE, 30, path=(LIAR, OURS, IDS[5])), 0)
    assert isinstance(further, Refuse)
    assert further.code == ResultCode.OVERLOADED
    # Tunnels of others continue, except to servers whose capacity is used up.
    for after, is_onward in ((IDS[5], True), (OTHER, False)):
        decision = dials.judge(VICTIM, encode_dial(TRACE, 30, path=(VICTIM, OURS, after)), 0)
        assert isinstance(decision, Forward) is is_onward
