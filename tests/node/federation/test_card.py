"""Cards as they travel: sizes, links, and how long they are valid."""

import pytest

from parley._lbm import keys
from parley._lbm.codec import Encodable
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import ConfigError
from parley._node.federation.card import read_card, sign_card
from parley._node.federation.envelopes import sign_envelope
from parley._node.federation.limits import CARD_VALID, LARGEST_CARD
from tests.node.federation.servers import MS, identity, node_id

HOUR = int(CARD_VALID * 1000)
GOOD: dict[int, Encodable] = {
    keys.KIND: "card",
    keys.NUMBER: 7,
    keys.MADE_MS: MS,
    keys.EXPIRES_MS: MS + HOUR,
    keys.LINKS: [[node_id(1), True]],
}


def test_what_is_said_is_read() -> None:
    links = {node_id(number): number % 2 == 0 for number in range(1, 5)}
    encoded = sign_card(
        identity(0),
        number=7,
        made_ms=MS,
        links=links,
        exports=["shop.*"],
        addresses=["tcp://a.example:4747"],
    )
    card = read_card(encoded)
    card.envelope.verify()
    assert (card.origin, card.number, card.encoded) == (node_id(0), 7, encoded)
    assert (card.made_ms, card.expires_ms) == (MS, MS + HOUR)
    assert dict(card.links) == links
    assert list(card.links) == sorted(links)
    assert (card.exports, card.addresses) == (("shop.*",), ("tcp://a.example:4747",))


def test_a_card_has_at_most_8_kib() -> None:
    bare = len(sign_envelope(identity(0), {**GOOD, keys.ADDRESSES: ["a" * 4096]}))
    room = LARGEST_CARD - bare + 4096
    at_limit = sign_card(
        identity(0), number=7, made_ms=MS, links={node_id(1): True}, addresses=["a" * (room - 3)]
    )
    assert LARGEST_CARD - 2 <= len(at_limit) <= LARGEST_CARD
    read_card(at_limit)
    with pytest.raises(ConfigError):
        sign_card(
            identity(0), number=7, made_ms=MS, links={node_id(1): True}, addresses=["a" * room]
        )
    with pytest.raises(LbmDecodeError):
        read_card(sign_envelope(identity(0), {**GOOD, keys.ADDRESSES: ["a" * (room + 1)]}))
