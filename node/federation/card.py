"""A card: what a server says of itself, signed (section 19)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from parley._crypto.identity import Identity, NodeId
from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import ConfigError
from parley._node.federation.envelopes import CONTENT_CELLS, Envelope, sign_envelope
from parley._node.federation.limits import CARD_VALID, LARGEST_CARD, MOST_LINKS
from parley._node.protocol.event_types import EXPORTS_KIND, is_node_id
from parley._node.protocol.payload_schema import Cells, FieldType, uint

KIND: Final = "card"


def _are_links(value: list[Any]) -> bool:
    return (
        len(value) <= MOST_LINKS
        and all(
            type(one) is list and len(one) == 2 and is_node_id(one[0]) and type(one[1]) is bool
            for one in value
        )
        and len({one[0] for one in value}) == len(value)
    )


def _check_life(cells: Mapping[int, Any]) -> None:
    if not 0 < cells[keys.EXPIRES_MS] - cells[keys.MADE_MS] <= CARD_VALID * 1000:
        life = cells[keys.EXPIRES_MS] - cells[keys.MADE_MS]
        raise LbmDecodeError(
            f"a card is valid for {life:,} ms; it must be 1 to {CARD_VALID * 1000:,}"
        )


_CARD: Final = Cells(
    {
        **CONTENT_CELLS,
        keys.NUMBER: uint(1),
        keys.LINKS: FieldType("an array of [node id, carries], each id once", list, _are_links),
    },
    {
        keys.EXPORTS: EXPORTS_KIND,
        keys.ADDRESSES: FieldType(
            "an array of text", list, lambda value: all(type(one) is str for one in value)
        ),
    },
    check=_check_life,
)


class Card:
    """What the server `origin` said of itself, in `number`, which rises with each card of it.

    `links` are the servers that it has a link with, in the order of their ids, and whether
    tunnels that come from there may go on through it; `made_ms` and `expires_ms` are by its clock;
    `encoded` is its envelope as it travels, at most 8 KiB. Nothing is known of the signature
    before `envelope.verify()`.
    """

    __slots__ = ("encoded", "envelope", "expires_ms", "links", "made_ms", "number", "origin")

    def __init__(self, envelope: Envelope) -> None:
        cells = envelope.cells
        self.envelope = envelope
        # Each is asked for again and again as cards are passed on.
        self.origin: NodeId = envelope.origin
        self.encoded = envelope.encoded
        self.number: int = cells[keys.NUMBER]
        self.made_ms: int = envelope.made_ms
        self.expires_ms: int = envelope.expires_ms
        self.links: Mapping[NodeId, bool] = {
            NodeId(server): carries for server, carries in sorted(cells[keys.LINKS])
        }

    @property
    def exports(self) -> tuple[str, ...]:
        """What may be asked there through a tunnel: for people to see, not authority."""
        return tuple(self.envelope.cells.get(keys.EXPORTS, ()))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it says that it listens."""
        return tuple(self.envelope.cells.get(keys.ADDRESSES, ()))

    def __repr__(self) -> str:
        return f"<Card {self.number} of {self.origin.short}, {len(self.links)} links>"


def read_card(encoded: bytes) -> Card:
    """Read the bytes of a card; its signature is yet to be verified.

    Raises:
        LbmDecodeError: it is malformed, more than 8 KiB, valid for more than an hour, or its key
            is not the origin's.
    """
    if len(encoded) > LARGEST_CARD:
        raise LbmDecodeError(f"a card has at most {LARGEST_CARD} bytes")
    return Card(Envelope(encoded, KIND, _CARD))


def sign_card(
    identity: Identity,
    *,
    number: int,
    made_ms: int,
    links: Mapping[NodeId, bool],
    exports: Iterable[str] = (),
    addresses: Iterable[str] = (),
) -> bytes:
    """The bytes of a card of ours that is valid for an hour from `made_ms` on.

    Raises:
        ConfigError: it would have more than 8 KiB.
    """
    encoded = sign_envelope(
        identity,
        {
            keys.KIND: KIND,
            keys.NUMBER: number,
            keys.MADE_MS: made_ms,
            keys.EXPIRES_MS: made_ms + int(CARD_VALID * 1000),
            keys.LINKS: [[server, links[server]] for server in sorted(links)],
            keys.EXPORTS: list(exports),
            keys.ADDRESSES: list(addresses),
        },
    )
    if len(encoded) > LARGEST_CARD:
        raise ConfigError(
            f"exports and addresses are too much for a card: {len(encoded)} bytes of {LARGEST_CARD}"
        )
    return encoded
