"""Envelopes and cards (section 19): signed content outside of a session, and how a card is
processed.

Written from the document. Times are milliseconds since 1970; a table's clock is the time passed to
it.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from tests.reference import cbor
from tests.reference.identity import node_id, read_origin
from tests.reference.primitives import SIGNING_NAMES, CryptoFailure, check_public, verify
from tests.reference.wire import CELLS, named_types, own_cells

LARGEST_CARD: Final = 8_192
MOST_LINKS: Final = 64
MOST_EXPORTS: Final = 64
LONGEST_EXPORT: Final = 256
LONGEST_LIFE_MS: Final = 3_600_000
AHEAD_MS: Final = 300_000
KEPT_MS: Final = 65 * 60_000
ID_SIZE: Final = 32
_OF_ALL: Final = ("kind", "origin", "made_ms", "expires_ms", "keys")
_OF_CARDS: Final = ("number", "links", "exports", "addresses")
_PARTS: Final = {CELLS["content"], CELLS["signing"], CELLS["signature"]}


class Signs(Protocol):
    """A key as SigningKey and RecordedKey are."""

    def sign(self, message: bytes) -> bytes:
        """A signature over `message`."""
        ...


class Dropped(Exception):
    """A rejected envelope; `reason` is `malformed`, `stranger`, `old`, `signature` (which resets
    the stream) or `clock`.
    """

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(f"{reason}: {why}")
        self.reason = reason
        self.why = why


def malformed(why: str) -> Dropped:
    """Raise Dropped for content that doesn't match the document."""
    return Dropped("malformed", why)


def signed_message(signing: str, content: bytes) -> bytes:
    """What the signature of an envelope is over."""
    name = signing.encode()
    return b"parley1 envelope" + bytes([len(name)]) + name + content


def enclose(signing: str, key: Signs, content: bytes) -> bytes:
    """The envelope of a content."""
    signature = key.sign(signed_message(signing, content))
    return cbor.encode_payload(
        {
            CELLS["content"]: content,
            CELLS["signing"]: signing,
            CELLS["signature"]: signature,
        }
    )


@dataclass(frozen=True)
class Enclosed:
    """An envelope that was read, and whose signature was not checked yet."""

    content: bytes
    cells: dict[int, Any]
    signing: str
    public: bytes
    commitment: bytes | None
    signature: bytes

    @property
    def origin(self) -> bytes:
        """The node id of the key that has to have signed it."""
        return node_id(self.signing, self.public, self.commitment)

    @property
    def kind(self) -> str:
        """By which table its content is read."""
        return str(self.cells[CELLS["kind"]])

    def verify(self) -> None:
        """Raises Dropped `signature`."""
        try:
            check_public(self.signing, self.public)
            message = signed_message(self.signing, self.content)
            verify(self.signing, self.public, message, self.signature)
        except CryptoFailure as failure:
            raise Dropped("signature", "it does not verify") from failure


def read_envelope(data: bytes) -> Enclosed:
    """All but the signature is checked; raises Dropped `malformed`."""
    try:
        outer = named_types(cbor.decode_payload(data, keep_noise=True))
        if set(outer) != _PARTS:
            raise malformed("other cells than content, signing and signature")
        content = outer[CELLS["content"]]
        cells = own_cells(content, *_OF_ALL, *_OF_CARDS)
    except cbor.LbmError as error:
        raise malformed(str(error)) from error
    for name in _OF_ALL:
        if CELLS[name] not in cells:
            raise malformed(f"content without {name}")
    try:
        algorithm, public, commitment = read_origin(cells[CELLS["keys"]])
    except CryptoFailure as failure:
        raise malformed(str(failure)) from failure
    if outer[CELLS["signing"]] != algorithm or algorithm not in SIGNING_NAMES:
        raise malformed("signed by another algorithm than the key's, or by one not known")
    found = Enclosed(content, cells, algorithm, public, commitment, outer[CELLS["signature"]])
    if cells[CELLS["origin"]] != found.origin:
        raise malformed("the origin is not of this key")
    return found


@dataclass(frozen=True)
class ReadCard:
    """The content of kind `card`."""

    origin: bytes
    number: int
    made_ms: int
    expires_ms: int
    links: dict[bytes, bool]
    exports: list[str]
    addresses: list[str]


def read_card(data: bytes) -> tuple[ReadCard, Enclosed]:
    """Return the card in an envelope without checking its signature. Raises Dropped `malformed`."""
    if len(data) > LARGEST_CARD:
        raise malformed("above 8,192 bytes")
    enclosed = read_envelope(data)
    cells = enclosed.cells
    if enclosed.kind != "card":
        raise malformed("no card")
    if CELLS["number"] not in cells or CELLS["links"] not in cells:
        raise malformed("a card has a number and links")
    if not cells[CELLS["number"]]:
        raise malformed("numbers begin with 1")
    made, expires = cells[CELLS["made_ms"]], cells[CELLS["expires_ms"]]
    if not 0 < expires - made <= LONGEST_LIFE_MS:
        raise malformed("valid for no time, or for more than an hour")
    exports = cells.get(CELLS["exports"], [])
    addresses = cells.get(CELLS["addresses"], [])
    check_exports(exports)
    if not all(isinstance(one, str) for one in addresses):
        raise malformed("addresses are text")
    links = _read_links(cells[CELLS["links"]])
    number = cells[CELLS["number"]]
    return ReadCard(enclosed.origin, number, made, expires, links, exports, addresses), enclosed


def _read_links(links: list[Any]) -> dict[bytes, bool]:
    found: dict[bytes, bool] = {}
    for entry in links:
        if not isinstance(entry, list) or len(entry) != 2 or not is_id(entry[0]):
            raise malformed("a link is [node id, carries]")
        if not isinstance(entry[1], bool):
            raise malformed("carries is a boolean")
        if entry[0] in found:
            raise malformed("a link twice")
        found[entry[0]] = entry[1]
    if len(found) > MOST_LINKS:
        raise malformed("more than 64 links")
    return found


def check_exports(exports: Any) -> None:
    """Raises Dropped `malformed`."""
    if not isinstance(exports, list) or len(exports) > MOST_EXPORTS:
        raise malformed("more than 64 exports")
    if not all(isinstance(one, str) and len(one) <= LONGEST_EXPORT for one in exports):
        raise malformed("exports are texts of at most 256 characters")


def is_id(value: Any) -> bool:
    """Whether it is a node id, as it travels."""
    return isinstance(value, bytes) and len(value) == ID_SIZE


class CardTable:
    """The cards that a server has; `numbers` knows the highest of each origin.

    `above` is what the server's own next card has to be greater than.
    """

    def __init__(self, own: bytes, members: set[bytes], above: int = 0) -> None:
        self.own, self.members, self.above = own, members, above
        self.numbers: dict[bytes, int] = {}
        self.cards: dict[bytes, tuple[ReadCard, bytes]] = {}
        self._forget: dict[bytes, int] = {}

    def take(self, data: bytes, now_ms: int) -> ReadCard:
        """A card that is news, or one's own that counts; raises Dropped for any other."""
        card, enclosed = read_card(data)
        if card.origin == self.own:
            if card.number <= self.above:
                raise Dropped("old", "one's own, and not above the last")
            enclosed.verify()
            self.above = card.number
            return card
        if card.origin not in self.members:
            raise Dropped("stranger", "its origin is not a member")
        if card.number <= self.numbers.get(card.origin, 0):
            raise Dropped("old", "not above the number that is known")
        enclosed.verify()
        if card.made_ms > now_ms + AHEAD_MS:
            raise Dropped("clock", "made ahead of time")
        if card.expires_ms <= now_ms:
            raise Dropped("clock", "expired")
        self.numbers[card.origin] = card.number
        self.cards[card.origin] = card, data
        self._forget[card.origin] = card.expires_ms + KEPT_MS
        return card

    def forget(self, now_ms: int) -> None:
        """Cards that have expired, and numbers 65 minutes later."""
        for origin, (card, _) in list(self.cards.items()):
            if card.expires_ms <= now_ms:
                del self.cards[origin]
        for origin, until in list(self._forget.items()):
            if until <= now_ms:
                del self._forget[origin], self.numbers[origin]

    def next_number(self, now_ms: int) -> int:
        """The number of one's own card that is made now."""
        self.above = max(now_ms, self.above + 1)
        return self.above
