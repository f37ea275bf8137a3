"""The stream `federation` of one link session, on which servers exchange cards and key statements
(sections 19 and 22).

For each origin, the exchange stores the highest card number sent or received, and only sends cards
with a higher number. The send queue contains origins, not cards, so that the newest card is sent
when the stream has capacity. Therefore a card crosses a session at most once per direction.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._lbm.errors import LbmDecodeError
from parley._node.federation.cards import Card, Cards
from parley._node.federation.statement_exchange import StatementExchange
from parley._node.protocol import codes
from parley._node.protocol.errors import RemoteProtocolError, violation
from parley._node.protocol.event_types import CARDS, HAVE, LARGEST_CARDS

# Encoded sizes: in a Cards event, the head of the map, its key and the head of the array; and the
# head of each envelope.
_AROUND: Final = 8
_HEAD: Final = 3


class CardEvent(NamedTuple):
    """An event of category 8 to send: its subcategory and its payload."""

    subcategory: int
    payload: bytes


class CardExchange:
    """The exchange of cards, and of `statements`, on one stream `federation`."""

    __slots__ = ("_cards", "_highest", "_received_have", "_sent_have", "_statements", "_waiting")

    def __init__(self, cards: Cards, statements: StatementExchange) -> None:
        self._cards = cards
        self._statements = statements
        statements.begin_stream()
        self._highest = cards.numbers()
        # Origins with a card to send, in order of waiting.
        self._waiting: OrderedDict[NodeId, None] = OrderedDict()
        self._sent_have = False  # Have was sent
        self._received_have = False  # Have was received

    def next_at(self) -> float | None:
        """Return the time at which `next_event` may return an event, or None without one."""
        if not self._sent_have or self._waiting:
            return float("-inf")
        return self._statements.next_at()

    def news(self, card: Card) -> None:
        """Queue a card that was accepted, or a new card of this server."""
        # Before the peer's Have arrives, its missing cards are unknown; `_receive_have` queues
        # them.
        if self._received_have and card.number > self._highest[self._cards.places[card.origin]]:
            self._waiting[card.origin] = None

    def next_event(self, now: float) -> CardEvent | None:
        """Return the next event to send, or None. Call it when the stream has capacity."""
        if not self._sent_have:
            self._sent_have = True
            have = [[origin, card.number] for origin, card in self._cards.items()]
            slots = self._statements.slots()
            return CardEvent(codes.HAVE, encode({keys.HAVE: have, keys.SLOTS: slots}))
        batch: list[bytes] = []
        size = _AROUND
        while self._waiting:
            origin, _ = self._waiting.popitem(last=False)
            # It may have expired, or have been received from the peer, since it was queued; or it
            # is no longer a member's.
            card = self._cards.get(origin)
            if card is None or card.number <= self._highest[self._cards.places[origin]]:
                continue
            size += _HEAD + len(card.encoded)
            if size > LARGEST_CARDS:
                self._waiting[origin] = None
                self._waiting.move_to_end(origin, last=False)
                break
            batch.append(card.encoded)
            self._highest[self._cards.places[origin]] = card.number
        if batch:
            return CardEvent(codes.CARDS, encode({keys.ENVELOPES: batch}))
        payload = self._statements.next_payload(now)
        return None if payload is None else CardEvent(codes.STATEMENTS, payload)

    def receive(self, subcategory: int, payload: bytes) -> list[bytes]:
        """Return the envelopes in an event from the peer.

        Raises:
            RemoteProtocolError: the event is malformed, or not allowed at this point.
        """
        try:
            if subcategory == codes.HAVE and not self._received_have:
                self._receive_have(payload)
                return []
            if subcategory == codes.CARDS and self._received_have:
                envelopes: list[bytes] = CARDS.read(payload)[keys.ENVELOPES]
                size = sum(map(len, envelopes))
                if size <= LARGEST_CARDS:
                    return envelopes
                raise violation(f"{size:,} bytes of cards in an event; at most {LARGEST_CARDS:,}")
        except LbmDecodeError as error:
            raise violation(f"of a stream of cards: {error}") from error
        raise self._misplaced(subcategory)

    def receive_statements(self, payload: bytes, now: float) -> list[bytes] | None:
        """Return the statements in an event from the peer, or None if there are too many events.

        Raises:
            RemoteProtocolError: the event is malformed, or comes before Have.
        """
        if not self._received_have:
            raise self._misplaced(codes.STATEMENTS)
        try:
            return self._statements.receive(payload, now)
        except LbmDecodeError as error:
            raise violation(f"statements of a stream of cards: {error}") from error

    def _misplaced(self, subcategory: int) -> RemoteProtocolError:
        place = "after" if self._received_have else "before"
        return violation(f"event {subcategory} {place} Have, with which a stream of cards begins")

    def _receive_have(self, payload: bytes) -> None:
        cells = HAVE.read(payload)
        for origin, number in cells[keys.HAVE]:
            self._record(origin, number)
        self._received_have = True
        self._statements.received_have(cells.get(keys.SLOTS))
        for card in self._cards.values():
            self.news(card)

    def received_card(self, card: Card) -> None:
        """Record that the peer sent this card, whether it is accepted or not."""
        self._record(card.origin, card.number)

    def _record(self, origin: NodeId, number: int) -> None:
        place = self._cards.places.get(origin)
        if place is not None and number > self._highest[place]:
            self._highest[place] = number
