"""The cards that a server stores: at most one per member, always the newest (section 19).

Each member has a place, a small number that identifies it in large tables. An expired card is
deleted, but its number is kept for some time, so that a server with a slow clock cannot reintroduce
the card. If a server creates cards too often, the newest is accepted later. So it cannot flood the
federation with cards.
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
    """A card: the server `origin` describes itself. Each of its cards has a higher `number`.

    `links` maps the IDs of its linked servers, in order, to whether it relays tunnels from them.
    `made_ms` and `expires_ms` are times by its clock. `encoded` is the envelope as sent, at most 8
    KiB. The signature is unverified until `envelope.verify()`.
    """

    __slots__ = ("encoded", "envelope", "expires_ms", "links", "made_ms", "number", "origin")

    def __init__(self, envelope: Envelope) -> None:
        cells = envelope.cells
        self.envelope = envelope
        # Attributes, because they are read often while cards are exchanged.
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
        """The names that can be used there through a tunnel; for information only, not for
        authorisation.
        """
        return tuple(self.envelope.cells.get(keys.EXPORTS, ()))

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses on which it claims to listen."""
        return tuple(self.envelope.cells.get(keys.ADDRESSES, ()))

    def __repr__(self) -> str:
        return f"<Card {self.number} of {self.origin.short}, {len(self.links)} links>"


def read_card(encoded: bytes) -> Card:
    """Parse the bytes of a card, without verifying its signature.

    Raises:
        LbmDecodeError: it is malformed, larger than 8 KiB or valid for more than an hour, or its
            key does not belong to the origin.
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
    """Return the bytes of a signed card that is valid for an hour from `made_ms` on.

    Raises:
        ConfigError: the card would be larger than 8 KiB.
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
            f"cannot make a card of {len(encoded):,} bytes: the maximum is {LARGEST_CARD:,}; "
            "shorten exports or addresses"
        )
    return encoded


_CLOCK_AHEAD_MS: Final = int(CLOCK_AHEAD * 1000)
_NUMBER_KEPT_MS: Final = int(NUMBER_KEPT * 1000)


class CardRefusal(StrEnum):
    """The reason why a card was refused."""

    MALFORMED = "malformed"
    NOT_A_MEMBER = "not a member"
    KNOWN = "known"  # this card or a newer one
    MADE_AHEAD = "made ahead"
    EXPIRED = "expired"
    FORGED = "forged"
    TOO_OFTEN = "too often"  # the newest refused card is accepted later


class Cards(Mapping[NodeId, Card]):
    """The cards of `members`, by the ID of their origin.

    `version` changes whenever the links in the cards change. `refused` counts refused cards by
    reason. If the last card of a member was refused because of its clock, `clocks` has the minimum
    offset of that clock in ms, negative if it is behind.

    Raises:
        ConfigError: more than 1,024 members.
    """

    def __init__(self, members: Iterable[NodeId]) -> None:
        self.places: Mapping[NodeId, int] = _places(members)
        self.version = 0
        self.refused: Counter[CardRefusal] = Counter()
        self.clocks: dict[NodeId, int] = {}
        self._cards: dict[NodeId, Card] = {}
        # By place: the number of the newest card, even if it has expired; 0 if unknown.
        self._numbers = array("Q", bytes(8 * len(self.places)))
        self._expired: dict[NodeId, int] = {}  # the time in ms until which the number is kept
        self._next_expiry = -1  # the time of the next expiry, or -1
        # By place: the time at which a full burst of cards is allowed again.
        self._rested_at = array("d", bytes(8 * len(self.places)))
        self._aside: dict[NodeId, Card] = {}  # cards refused as too frequent

    def __getitem__(self, origin: NodeId) -> Card:
        return self._cards[origin]

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._cards)

    def __len__(self) -> int:
        return len(self._cards)

    def __repr__(self) -> str:
        return f"<Cards {len(self)} of {len(self.places)} members>"

    def change_members(self, members: Iterable[NodeId]) -> None:
        """Replace the members. If there is a new one, places change, so all tables indexed by place
        must be recreated.

        Raises:
            ConfigError: more than 1,024 members; nothing has changed.
        """
        before, numbers, rested_at = self.places, self._numbers, self._rested_at
        self.places = _places(members)
        if self.places.keys() <= before.keys():
            self.places = {member: before[member] for member in self.places}
        else:
            self._numbers = array("Q", bytes(8 * len(self.places)))
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
        """Return an array of zeros with one number per place."""
        return array("Q", bytes(8 * len(self._numbers)))

    def take(self, card: Card, now: float, now_ms: int) -> CardRefusal | None:
        """Accept a card, or count and return the reason for refusing it.

        Cheap checks come first. The signature is verified only if the card is new.
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
        """Store a card of this server, or a verified card."""
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
        """Return the time, by the clock of `now`, at which to call `release`; None if no card
        waits.
        """
        return min((self._rests_until(self.places[one]) for one in self._aside), default=None)

    def release(self, now: float, now_ms: int) -> list[Card]:
        """Accept the waiting cards whose time has come, and return them."""
        due = [one for one in self._aside if self._rests_until(self.places[one]) <= now]
        cards = [self._aside.pop(origin) for origin in due]
        return [card for card in cards if self.take(card, now, now_ms) is None]

    def next_expiry(self) -> int | None:
        """Return the time in ms since 1970 at which to call `expire`; None if no card expires."""
        return None if self._next_expiry < 0 else self._next_expiry

    def expire(self, now_ms: int) -> None:
        """Delete expired cards, and the numbers of cards that expired long ago."""
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
        raise ConfigError(
            f"cannot have a federation of {len(places):,} members: the maximum is {MOST_SERVERS:,}"
        )
    return places
