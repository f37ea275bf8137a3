"""The cards that a server has: at most one of each member, always the newest (section 19).

Each member has a place, a small number that stands for it wherever much is kept of all of them.
A card that expired is forgotten; its number is kept a while longer, so that a server whose clock
is slow cannot bring the card back. A server that makes more cards than it may has the newest taken
when it is time: so however many it makes, they are not passed on through the whole federation.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from parley._crypto.errors import SignatureError
from parley._crypto.identity import Identity, NodeId
from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import ConfigError
from parley._node.federation.envelopes import CONTENT_CELLS, Envelope, sign_envelope
from parley._node.federation.limits import (
    CARD_VALID,
    CARDS_OF_ORIGIN,
    CLOCK_AHEAD,
    LARGEST_CARD,
    MOST_LINKS,
    NUMBER_KEPT,
)
from parley._node.protocol.event_types import EXPORTS_KIND, MOST_SERVERS, is_node_id
from parley._node.protocol.payload_schema import FieldType, PayloadSchema, uint

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


_CARD: Final = PayloadSchema(
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


_CLOCK_AHEAD_MS: Final = int(CLOCK_AHEAD * 1000)
_NUMBER_KEPT_MS: Final = int(NUMBER_KEPT * 1000)


class CardRefusal(StrEnum):
    """Why a card was not taken."""

    MALFORMED = "malformed"
    NOT_A_MEMBER = "not a member"
    KNOWN = "known"  # this card, or one with a higher number
    MADE_AHEAD = "made ahead"
    EXPIRED = "expired"
    FORGED = "forged"
    TOO_OFTEN = "too often"  # the newest of them is taken later


class Cards(Mapping[NodeId, Card]):
    """The cards of `members`, by the id of their origin.

    `version` changes whenever the cards tell of other links. `refused` counts by reason; `clocks`
    says of members whose last card was refused for its clock how many ms that is ahead of ours, at
    least (negative: behind).

    Raises:
        ConfigError: more than 1,024 members.
    """

    def __init__(self, members: Iterable[NodeId]) -> None:
        self.places: Mapping[NodeId, int] = _places(members)
        self.version = 0
        self.refused: Counter[CardRefusal] = Counter()
        self.clocks: dict[NodeId, int] = {}
        self._cards: dict[NodeId, Card] = {}
        # By place: the number of the newest card, also of one that has expired; 0 for none.
        self._numbers = self.numbers()
        self._expired: dict[NodeId, int] = {}  # until when their numbers are kept, in ms
        self._next_expiry = -1  # nothing expires before that; -1 if nothing is to expire
        # By place: from when on as many cards at once may come again as ever.
        self._rested_at = array("d", bytes(8 * len(self.places)))
        self._aside: dict[NodeId, Card] = {}  # those that came too often

    def __getitem__(self, origin: NodeId) -> Card:
        return self._cards[origin]

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._cards)

    def __len__(self) -> int:
        return len(self._cards)

    def __repr__(self) -> str:
        return f"<Cards {len(self)} of {len(self.places)} members>"

    def change_members(self, members: Iterable[NodeId]) -> None:
        """Have the cards of these from now on. Places change, so whatever is kept by them is to be
        begun anew. Raises ConfigError, and nothing has changed, as when it was made."""
        before, numbers, rested_at = self.places, self._numbers, self._rested_at
        self.places = _places(members)
        self._numbers = self.numbers()
        self._rested_at = array("d", bytes(8 * len(self.places)))
        for member, place in self.places.items():
            was = before.get(member)
            if was is not None:
                self._numbers[place], self._rested_at[place] = numbers[was], rested_at[was]
        for gone in before.keys() - self.places.keys():
            for kept in (self._cards, self._expired, self._aside, self.clocks):
                kept.pop(gone, None)
        self.version += 1

    def numbers(self) -> "array[int]":
        """A number for each place, all 0 at first."""
        return array("Q", bytes(8 * len(self.places)))

    def take(self, card: Card, now: float, now_ms: int) -> CardRefusal | None:
        """Take a card if it is to be taken, else count and return why not.

        What costs least is asked first, and the signature only of what would be news.
        """
        refusal = self._refusal(card, now, now_ms)
        if refusal is None:
            self.put(card)
        else:
            self.refused[refusal] += 1
        return refusal

    def _refusal(self, card: Card, now: float, now_ms: int) -> CardRefusal | None:
        origin = card.origin
        place = self.places.get(origin)
        if place is None:
            return CardRefusal.NOT_A_MEMBER
        if card.number <= self._numbers[place]:
            return CardRefusal.KNOWN
        known = self._cards.get(origin)
        try:
            card.envelope.verify(None if known is None else known.envelope)
        except SignatureError:
            return CardRefusal.FORGED
        ahead, left = card.made_ms - now_ms, card.expires_ms - now_ms
        if ahead > _CLOCK_AHEAD_MS:
            self.clocks[origin] = ahead
            return CardRefusal.MADE_AHEAD
        if left <= 0:
            self.clocks[origin] = left
            return CardRefusal.EXPIRED
        if self._rests_until(place) > now:
            aside = self._aside.get(origin)
            if aside is None or aside.number < card.number:
                self._aside[origin] = card
            return CardRefusal.TOO_OFTEN
        self._rested_at[place] = max(self._rested_at[place], now) + CARDS_OF_ORIGIN.seconds
        return None

    def put(self, card: Card) -> None:
        """Have this card, which is ours, or was found to be right."""
        origin = card.origin
        known = self._cards.get(origin)
        if known is None or known.links != card.links:
            self.version += 1
        self._cards[origin] = card
        self._numbers[self.places[origin]] = card.number
        self._expired.pop(origin, None)
        self.clocks.pop(origin, None)
        self._expires(card.expires_ms)

    def _rests_until(self, place: int) -> float:
        return self._rested_at[place] - (CARDS_OF_ORIGIN.burst - 1) * CARDS_OF_ORIGIN.seconds

    def next_release(self) -> float | None:
        """Call `release` again then, by the clock of `now`; None if nothing was set aside."""
        return min((self._rests_until(self.places[one]) for one in self._aside), default=None)

    def release(self, now: float, now_ms: int) -> list[Card]:
        """Take the cards that came too often and for which it is time now."""
        due = [one for one in self._aside if self._rests_until(self.places[one]) <= now]
        cards = [self._aside.pop(origin) for origin in due]
        return [card for card in cards if self.take(card, now, now_ms) is None]

    def next_expiry(self) -> int | None:
        """Call `expire` again then, in ms since 1970; None if nothing is to expire."""
        return None if self._next_expiry < 0 else self._next_expiry

    def expire(self, now_ms: int) -> None:
        """Forget the cards that have expired, and the numbers of those that did so long ago."""
        if not 0 <= self._next_expiry <= now_ms:
            return
        self._next_expiry = -1
        for origin, card in list(self._cards.items()):
            expires = card.expires_ms
            if expires > now_ms:
                self._expires(expires)
                continue
            del self._cards[origin]
            self._expired[origin] = expires + _NUMBER_KEPT_MS
            self.version += 1
        for origin, until in list(self._expired.items()):
            if until > now_ms:
                self._expires(until)
                continue
            del self._expired[origin]
            self._numbers[self.places[origin]] = 0

    def _expires(self, at_ms: int) -> None:
        if self._next_expiry < 0 or at_ms < self._next_expiry:
            self._next_expiry = at_ms


def _places(members: Iterable[NodeId]) -> dict[NodeId, int]:
    places = {member: place for place, member in enumerate(sorted(set(members)))}
    if len(places) > MOST_SERVERS:
        raise ConfigError(f"{len(places)} members: a federation has at most {MOST_SERVERS}")
    return places
