"""The stream `federation` of one link session: cards that are sent and received there (section 19).

Of each origin the highest number that passed, in either direction, is kept; only a card above it
is sent, and what waits to be sent is the origin and not the card, so that the newest goes out
whenever there is room. So a card crosses a session at most once in each direction.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._lbm.errors import LbmDecodeError
from parley._node.federation.cards import Card, Cards
from parley._node.protocol import codes
from parley._node.protocol.errors import violation
from parley._node.protocol.event_types import CARDS, HAVE, LARGEST_CARDS

# Of a Cards: the head of its map, its key and the head of its array; of each envelope, its head.
_AROUND: Final = 8
_HEAD: Final = 3


class CardEvent(NamedTuple):
    """An event of category 8 to be sent: its subcategory (1 Have, 2 Cards) and its payload."""

    subcategory: int
    payload: bytes


class CardExchange:
    """What passes on one stream `federation`, between its opening and its end."""

    __slots__ = ("_cards", "_greeted", "_highest", "_met", "_waiting")

    def __init__(self, cards: Cards) -> None:
        self._cards = cards
        self._highest = cards.numbers()
        # Origins of which a card waits, those that wait longest first.
        self._waiting: OrderedDict[NodeId, None] = OrderedDict()
        self._greeted = False  # we have sent Have
        self._met = False  # and they theirs

    @property
    def wants_to_send(self) -> bool:
        """Whether `next_event` may have something."""
        return bool(not self._greeted or self._waiting)

    def news(self, card: Card) -> None:
        """This card was taken, or is ours and new."""
        # What they lack before they have said what they have, that will tell.
        if self._met and card.number > self._highest[self._cards.places[card.origin]]:
            self._waiting[card.origin] = None

    def next_event(self) -> CardEvent | None:
        """What is to be sent next, to be asked for when the stream has room for it."""
        if not self._greeted:
            self._greeted = True
            have = [[origin, card.number] for origin, card in self._cards.items()]
            return CardEvent(codes.HAVE, encode({keys.HAVE: have}))
        batch: list[bytes] = []
        size = _AROUND
        while self._waiting:
            origin, _ = self._waiting.popitem(last=False)
            place = self._cards.places[origin]
            # It may have expired, or have come from there, since it began to wait.
            if origin not in self._cards or self._cards[origin].number <= self._highest[place]:
                continue
            card = self._cards[origin]
            size += _HEAD + len(card.encoded)
            if size > LARGEST_CARDS:
                self._waiting[origin] = None
                self._waiting.move_to_end(origin, last=False)
                break
            batch.append(card.encoded)
            self._highest[place] = card.number
        return CardEvent(codes.CARDS, encode({keys.ENVELOPES: batch})) if batch else None

    def receive(self, subcategory: int, payload: bytes) -> list[bytes]:
        """The envelopes that an event of theirs has.

        Raises:
            RemoteProtocolError: it is malformed, or is not the one that may come now.
        """
        try:
            if subcategory == codes.HAVE and not self._met:
                self._receive_have(payload)
                return []
            if subcategory == codes.CARDS and self._met:
                envelopes: list[bytes] = CARDS.read(payload)[keys.ENVELOPES]
                size = sum(map(len, envelopes))
                if size <= LARGEST_CARDS:
                    return envelopes
                raise violation(f"{size:,} bytes of cards in an event; at most {LARGEST_CARDS:,}")
        except LbmDecodeError as error:
            raise violation(f"of a stream of cards: {error}") from error
        place = "after" if self._met else "before"
        raise violation(f"event {subcategory} {place} Have, with which a stream of cards begins")

    def _receive_have(self, payload: bytes) -> None:
        for origin, number in HAVE.read(payload)[keys.HAVE]:
            self._passed(origin, number)
        self._met = True
        for card in self._cards.values():
            self.news(card)

    def came(self, card: Card) -> None:
        """They sent this card, whether it is taken or not."""
        self._passed(card.origin, card.number)

    def _passed(self, origin: NodeId, number: int) -> None:
        place = self._cards.places.get(origin)
        if place is not None and number > self._highest[place]:
            self._highest[place] = number
