"""The vectors in federation.json, made by the second implementation of sections 19 and 20."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.registry import SIGNING
from parley._lbm import keys
from parley._lbm.codec import decode, encode
from parley._node.federation.accounts import Accounts
from parley._node.federation.cards import Card, CardRefusal, read_card
from parley._node.federation.dials import (
    Attempts,
    DeliverLocally,
    Dials,
    Forward,
    Originate,
    Refuse,
    encode_dial,
)
from parley._node.federation.directory import Directory
from parley._node.federation.envelopes import sign_envelope
from parley._node.federation.paths import Avoided, Obstacle, Path, PathFinder, Route, shortest_paths
from parley._node.protocol import codes
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event_types import CARDS, LOGIN
from tests.vectors.load import Vector, of_kind, read, unhex, vectors

FILE = "federation"
TABLE = read(FILE)["table"]
NOW = int(TABLE["now_ms"])
OWN = Identity.from_keys([SIGNING["ed25519"].load(unhex(TABLE["own_seed"]))])
MEMBERS = [NodeId(unhex(one)) for one in TABLE["members"]]
# Neighbours of the server: the one with the tested stream, and one that sends other cards.
OTHER, FAR = MEMBERS[:2]
REASONS = {
    "malformed": {CardRefusal.MALFORMED},
    "stranger": {CardRefusal.NOT_A_MEMBER},
    "old": {CardRefusal.KNOWN},
    "clock": {CardRefusal.MADE_AHEAD, CardRefusal.EXPIRED},
}
HAVE_NOTHING = encode({keys.HAVE: []})


def hexes(ids: Collection[bytes]) -> list[str]:
    return [bytes(one).hex() for one in ids]


def ids_of(texts: Sequence[str]) -> tuple[NodeId, ...]:
    return tuple(NodeId(unhex(text)) for text in texts)


class Server:
    """A server with two neighbours, one of which has sent Have on its stream."""

    def __init__(self) -> None:
        self.directory = Directory(OWN, MEMBERS)
        for neighbour in (OTHER, FAR):
            self.directory.link_up(neighbour, 0, int(TABLE["own_number"]))
            self.directory.begin_exchange(neighbour)
        self.hear(FAR, codes.HAVE, HAVE_NOTHING)

    def hear(self, neighbour: NodeId, subcategory: int, payload: bytes) -> None:
        self.directory.receive(neighbour, subcategory, payload, 0, NOW)

    def brought(self, *envelopes: bytes) -> None:
        """Receive cards over the other link."""
        self.hear(FAR, codes.CARDS, encode({keys.ENVELOPES: list(envelopes)}))

    def said(self) -> Iterator[tuple[int, bytes]]:
        """Return the events sent on the tested stream."""
        while (event := self.directory.next_event(OTHER, 0)) is not None:
            yield event

    @property
    def reasons(self) -> list[CardRefusal]:
        return list(self.directory.cards.refused.elements())


@vectors(FILE, of_kind("envelope"))
def test_an_envelope(vector: Vector) -> None:
    expected, content = vector["expected"], decode(unhex(vector["content"]))
    envelope = read_card(unhex(expected["envelope"])).envelope
    envelope.verify()
    assert (envelope.origin.hex(), envelope.signing) == (expected["origin"], vector["signing"])
    identity = Identity.from_keys([SIGNING[vector["signing"]].load(unhex(vector["seed"]))])
    ours = read_card(sign_envelope(identity, content))
    ours.envelope.verify()
    if vector["signing"] == "ed25519":
        assert ours.encoded.hex() == expected["envelope"]
    assert decode(ours.encoded)[keys.CONTENT] == decode(unhex(expected["envelope"]))[keys.CONTENT]


@vectors(FILE, of_kind("card"), fails=False)
def test_a_card_that_counts(vector: Vector) -> None:
    server, expected, encoded = Server(), vector["expected"], unhex(vector["input"])
    server.brought(*map(unhex, TABLE["known"]))
    server.brought(encoded)
    card = read_card(encoded)
    if "next_number" in expected:
        server.directory.handle_deadline(5, NOW)
        assert server.directory.cards[OWN.node_id].number == expected["next_number"]
        return
    assert server.directory.cards[card.origin].encoded == encoded
    links = [[server.hex(), carries] for server, carries in card.links.items()]
    assert links == sorted(expected["links"])
    assert (card.origin.hex(), card.number) == (expected["origin"], int(expected["number"]))
    life = (card.envelope.made_ms, card.envelope.expires_ms)
    assert life == (expected["made_ms"], expected["expires_ms"])
    assert [*card.exports] == expected["exports"]
    assert [*card.addresses] == expected["addresses"]


@vectors(FILE, of_kind("card"), fails=True)
def test_refused_cards(vector: Vector) -> None:
    server, encoded = Server(), unhex(vector["input"])
    server.brought(*map(unhex, TABLE["known"]))
    before = {origin: card.number for origin, card in server.directory.cards.items()}
    if vector["fails"] == "signature":
        with pytest.raises(RemoteProtocolError) as caught:
            server.brought(encoded)
        assert caught.value.code == codes.CloseCode.PROTOCOL_ERROR
    else:
        server.brought(encoded)
        # A server's own card with a lower number is not counted.
        own = vector["fails"] == "old" and read_card(encoded).origin == OWN.node_id
        assert own or set(server.reasons) <= REASONS[vector["fails"]]
        assert len(server.reasons) == (0 if own else 1)
    server.directory.handle_deadline(4.9, NOW)
    assert {origin: card.number for origin, card in server.directory.cards.items()} == before


def exchanged(server: Server, vector: Vector) -> list[list[str]]:
    """Execute the steps; return the origins of the cards sent after each."""
    sent = []
    for kind, data in vector["steps"]:
        if kind == "news":
            server.brought(unhex(data))
        else:
            server.hear(OTHER, codes.HAVE if kind == "have" else codes.CARDS, unhex(data))
        batches = [CARDS.read(payload)[keys.ENVELOPES] for _, payload in server.said()]
        sent.append(sorted(read_card(one).origin.hex() for batch in batches for one in batch))
    return sent


def begun(vector: Vector) -> tuple[Server, list[Any]]:
    """Create a server with the cards of a vector, and return the content of its Have."""
    server = Server()
    cards = [read_card(unhex(one)) for one in vector["cards"]]
    server.brought(*(card.encoded for card in cards if card.origin != OWN.node_id))
    subcategory, payload = next(server.said())
    assert subcategory == codes.HAVE
    entries = cast(list[Any], decode(payload)[keys.HAVE])
    return server, sorted([origin.hex(), number] for origin, number in entries)


@vectors(FILE, of_kind("exchange"), fails=False)
def test_an_exchange(vector: Vector) -> None:
    server, have = begun(vector)
    expected = vector["expected"]
    assert have == expected["have"]
    assert exchanged(server, vector) == expected["sent"]
    known = {origin.hex(): card.number for origin, card in server.directory.cards.items()}
    del known[OWN.node_id.hex()]
    assert known == dict(expected["known"])
    # A card that the neighbour sent before is not sent when it arrives over the other link.
    reasons = [one for one in server.reasons if one is not CardRefusal.KNOWN]
    for one, reason in zip(reasons, expected["dropped"], strict=True):
        assert one in REASONS[reason]


@vectors(FILE, of_kind("exchange"), fails=True)
def test_an_exchange_that_is_reset(vector: Vector) -> None:
    server, _ = begun(vector)
    *before, last = vector["steps"]
    exchanged(server, {"steps": before})
    with pytest.raises(RemoteProtocolError) as caught:
        exchanged(server, {"steps": [last]})
    assert caught.value.code == codes.CloseCode.PROTOCOL_ERROR


def cards_of(links: Mapping[str, Any]) -> Mapping[NodeId, Card]:
    """Create cards for path finding, with links only."""
    return {
        NodeId(unhex(server)): cast(
            Card, SimpleNamespace(links={NodeId(unhex(to)): carries for to, carries in listed})
        )
        for server, listed in links.items()
    }


@vectors(FILE, of_kind("path"))
def test_a_path(vector: Vector) -> None:
    cards = cards_of(vector["links"])
    origin, target = ids_of([vector["from"], vector["to"]])
    edges = [cast(tuple[NodeId, NodeId], ids_of(edge)) for edge in vector["avoided_edges"]]
    avoided: set[Obstacle] = {*edges, *ids_of(vector["avoided_servers"])}
    neighbours = cards[origin].links if origin in cards else ()
    path = shortest_paths(origin, neighbours, cards, avoided).get(target)
    assert (None if path is None else hexes(path)) == vector.get("expected")


class OnePath:
    """A finder with a single path, whatever is avoided."""

    def __init__(self, path: Path) -> None:
        self.avoided: Avoided[Obstacle] = Avoided()
        self.avoided_by_route: Avoided[tuple[Route, Obstacle]] = Avoided()
        self._path = path

    def path_around(self, to: Sequence[NodeId], now: float, dialler: NodeId | None = None) -> Path:
        return self._path


@vectors(FILE, of_kind("failure"))
def test_what_a_failure_avoids(vector: Vector) -> None:
    path = ids_of(vector["path"])
    finder = OnePath(path)
    to = path[-2:] if vector["to_account"] else path[-1:]
    attempts = Attempts(cast(PathFinder, finder), to, 30)
    assert attempts.next(0) == path
    # An Answer without an index counts as 0; a missing Answer is noticed by the server itself.
    unanswered = vector["code"] is None
    code, hop = (17, None) if unanswered else (vector["code"], vector["hop"] or 0)
    attempts.failed(code, hop, 0)
    by_route = [one for _, one in finder.avoided_by_route.at(0)]
    found = [*finder.avoided.at(0), *by_route]
    assert bool(by_route) is (vector.get("expected", {}).get("for") == "route")
    assert (attempts.next(0) is None) is ("fails" in vector)
    expected = vector.get("expected", {"edges": [], "servers": []})
    assert sorted(one.hex() for one in found if isinstance(one, NodeId)) == expected["servers"]
    edges = [hexes(one) for one in found if not isinstance(one, NodeId)]
    assert sorted(edges) == expected["edges"]


class Situation:
    """The accounts of a node in the vectors, and its logged-in nodes."""

    def __init__(self, vector: Vector) -> None:
        self.node: Mapping[str, Any] = read(FILE)["nodes"][vector["node"]]
        may, self.linked = self.node["accounts"], frozenset(ids_of(self.node["linked"]))
        servers = self.linked | {*ids_of(self.node["members"])}
        self.ended, ids = (
            frozenset(ids_of(self.node["ended"])),
            None if may is None else ids_of(may),
        )
        self.accounts: Accounts[object] = Accounts((), servers)
        self.accounts.change(ids, self.ended)
        for one in ids_of(self.node["logged_in"]):
            self.accounts.login(one, object())

    def has_account(self, node_id: NodeId) -> bool:
        return self.accounts.may(node_id)

    def is_reachable_account(self, node_id: NodeId) -> bool:
        return self.accounts.session(node_id) is not None

    def judge(self, vector: Vector) -> DeliverLocally | Forward | Originate | Refuse:
        (own,) = ids_of([self.node["own"]])
        members, carry = ids_of(self.node["members"]), ids_of(self.node["carry"])
        (neighbour,) = ids_of([vector["neighbour"]])
        dials = Dials(own, members, self.linked, carry, self, self.ended.__contains__)
        return dials.judge(neighbour, unhex(vector["input"]), 0)

    def path(self, to: Sequence[NodeId]) -> Path | None:
        (own,) = ids_of([self.node["own"]])
        found = shortest_paths(own, self.linked, cards_of(self.node["links"])).get(to[0])
        return None if found is None else (*found, *to[1:])


def at_a_server(vector: Vector) -> bool:
    return bool(vector["kind"] == "dial" and vector["node"] != "no server")


@vectors(FILE, at_a_server, fails=False)
def test_dials_delivered_or_forwarded(vector: Vector) -> None:
    situation, expected = Situation(vector), vector["expected"]
    decision = situation.judge(vector)
    if "here" in expected:
        assert isinstance(decision, DeliverLocally)
    elif "path" in expected:
        assert isinstance(decision, (Forward, Originate))
        path = situation.path(decision.to) if isinstance(decision, Originate) else decision.path
        assert hexes(path or ()) == expected["path"]
    else:
        assert isinstance(decision, Forward)
        left = decision.deadline - vector["passed_ms"] / 1000
        payload = encode_dial(decision.trace, round(left, 6), path=decision.path)
        assert decision.after.hex() == expected["to"]
        assert payload.hex() == expected["payload"]


@vectors(FILE, at_a_server, fails=True)
def test_a_dial_that_is_refused(vector: Vector) -> None:
    situation = Situation(vector)
    decision = situation.judge(vector)
    if isinstance(decision, Originate):
        assert situation.path(decision.to) is None
        decision = Refuse(codes.ResultCode.UNREACHABLE, 0)
    assert isinstance(decision, Refuse)
    assert decision.code == int(vector["fails"])
    assert vector["hop"] in (None, decision.hop)


def plain_login(vector: Vector) -> bool:
    """Return the logins that don't depend on the connection (a tunnel, or no encryption)."""
    return bool(vector["kind"] == "login" and vector["encrypted"] and not vector["tunnelled"])


@vectors(FILE, plain_login)
def test_a_login(vector: Vector) -> None:
    (asker,) = ids_of([vector["neighbour"]])
    try:
        LOGIN.read(unhex(vector["input"]))
    except ValueError:
        code = codes.ResultCode.MALFORMED
    else:
        code = Situation(vector).accounts.login(asker, object())
    assert code == int(vector.get("fails", 0))
