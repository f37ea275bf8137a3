"""Cards, Dials and Logins on the wire, as a server and a node of the reference see them (sections
19 and 20).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from parley._crypto.identity import NodeId
from parley._node.server.federation import Federation
from parley._node.settings.tables import FederationSettings
from tests.interop.meeting import Ours, our_identity, our_node, their_config, their_identity
from tests.reference import acts, cbor
from tests.reference.envelopes import ReadCard, enclose, read_card
from tests.reference.peer import ReferencePeer
from tests.reference.vectors_cards import NOW, content_of
from tests.reference.wire import CELLS, CODES, RESET_CODES, TYPES, Event

pytestmark = pytest.mark.anyio

THEIRS: Final = their_identity()
OURS: Final = bytes(our_identity().node_id)
TRACE: Final = bytes(range(16))


@asynccontextmanager
async def server(**settings: Any) -> AsyncIterator[tuple[Ours, Federation]]:
    """Our node as a server."""
    async with our_node() as ours:
        settled = FederationSettings(**settings)
        async with Federation(ours.node, settled, wall=lambda: NOW) as federation:
            yield ours, federation


def their_card(number: int, **changes: Any) -> bytes:
    """Return a card of the reference that announces a link to the server."""
    key = THEIRS.keys[0]
    made = number
    cells = content_of(
        key,
        number=number,
        made_ms=made,
        expires_ms=made + 3_600_000,
        links=[[OURS, True]],
        **changes,
    )
    return enclose(key.algorithm, key, cbor.encode_payload(cells))


def awaited(peer: ReferencePeer, name: str, stream: int) -> dict[int, Any]:
    """The cells of the next event of a type on a stream."""

    def wanted(event: Event) -> bool:
        return (event.type, event.stream) == (TYPES[name], stream)

    return acts.wait_for(peer, wanted).cells()


def reset_of(peer: ReferencePeer, stream: int) -> int:
    """Return the code with which the local stream is reset."""

    def wanted(event: Event) -> bool:
        return event.type == TYPES["Reset"] and event.cells()[CELLS["stream"]] == stream

    return int(acts.wait_for(peer, wanted).cells()[CELLS["code"]])


def dialled(peer: ReferencePeer, **way: Any) -> tuple[int, int | None]:
    """Return code and hop of the Answer to a Dial on a separate stream."""
    stream = acts.open_stream(peer, "tunnel", 65_536)
    peer.send("Dial", stream, 1, trace=TRACE, deadline_ms=3_000, **way)
    cells = awaited(peer, "Tunnel Answer", stream)
    return cells[CELLS["code"]], cells.get(CELLS["hop"])


async def test_cards_cross_the_link() -> None:
    def act(peer: ReferencePeer) -> tuple[ReadCard, ReadCard]:
        peer.handshake()
        stream = acts.open_stream(peer, "federation")
        peer.send("Have", stream, have=[])
        awaited(peer, "Have", stream)
        first = awaited(peer, "Cards", stream)[CELLS["envelopes"]]
        peer.send("Cards", stream, envelopes=[their_card(NOW), b"no card"])
        card, enclosed = read_card(first[0])
        enclosed.verify()
        acts.call(peer, "parley.echo", "the card was read")
        acts.close(peer)
        return card, read_card(their_card(NOW))[0]

    async with server(members=(str(NodeId(THEIRS.id)),)) as (ours, federation):
        card, theirs = await ours.meet(act, config=their_config(resume_ms=0))
        assert card.origin == OURS
        assert card.links == {THEIRS.id: False}
        (known,) = federation.servers
        assert known.node_id == theirs.origin


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("forged", CODES["protocol-error"]),
        ("twice", CODES["protocol-error"]),
        ("stranger", 20),
    ],
)
async def test_streams_that_are_reset(wrong: str, code: int) -> None:
    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        stream = acts.open_stream(peer, "federation")
        peer.send("Have", stream, have=[])
        if wrong == "twice":
            peer.send("Have", stream, have=[])
        elif wrong == "forged":
            card = their_card(NOW)
            peer.send("Cards", stream, envelopes=[card[:-1] + bytes([card[-1] ^ 1])])
        found = reset_of(peer, stream)
        acts.call(peer, "parley.echo", "the link is there")
        acts.close(peer)
        return found

    members = () if wrong == "stranger" else (str(NodeId(THEIRS.id)),)
    async with server(members=members) as (ours, _):
        assert await ours.meet(act, config=their_config(resume_ms=0)) == code


async def test_dials_over_the_link() -> None:
    nobody, ids = bytes(32), [THEIRS.id, OURS]

    def act(peer: ReferencePeer) -> list[tuple[int, int | None]]:
        peer.handshake()
        stream = acts.open_stream(peer, "federation")
        peer.send("Have", stream, have=[])
        awaited(peer, "Have", stream)
        answers = [
            dialled(peer, path=ids),
            dialled(peer, path=[*ids, nobody]),
            dialled(peer, path=[*ids, nobody, bytes([1]) * 32]),
            dialled(peer, path=[nobody, OURS]),
            dialled(peer, path=[THEIRS.id, nobody]),
            dialled(peer, to=[OURS]),
        ]
        acts.close(peer)
        return answers

    async with server(members=(str(NodeId(THEIRS.id)),)) as (ours, _):
        answers = await ours.meet(act, config=their_config(resume_ms=0))
        assert answers[:4] == [(0, None), (1, 1), (20, 1), (20, 1)]
        assert [code for code, _ in answers[4:]] == [23, 20]


async def test_logins() -> None:
    def act(peer: ReferencePeer) -> list[int]:
        peer.handshake()
        codes = [dialled(peer, to=[OURS])[0]]
        for exports in (["shop.*"], [1], ["e" * 257]):
            peer.send("Login", 1, 1, exports=exports)
            codes.append(awaited(peer, "Account Answer", 1)[CELLS["code"]])
        for _ in range(2):
            peer.send("Logout", 1, 2)
            codes.append(awaited(peer, "Account Answer", 1)[CELLS["code"]])
        peer.send("Login", 1, 0)
        acts.call(peer, "parley.echo", "there was no answer")
        acts.close(peer)
        return codes

    async with server(accounts="any") as (ours, _):
        assert await ours.meet(act) == [0, 0, 23, 23, 0, 0]
    async with server() as (ours, _):
        assert await ours.meet(act) == [20, 20, 23, 23, 20, 20]
    async with our_node() as ours:

        def refused(peer: ReferencePeer) -> list[int]:
            peer.handshake()
            streams = [acts.open_stream(peer, label) for label in ("federation", "tunnel")]
            found = [reset_of(peer, stream) for stream in streams]
            acts.close(peer)
            return found

        assert await ours.meet(refused) == [RESET_CODES["no-handler"]] * 2
