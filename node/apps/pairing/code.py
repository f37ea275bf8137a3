"""A short code: a slot and two words, such as `7-crossover-clockwork` (section 21)."""

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from typing import Final, Self

from parley._crypto.hashing import HashAlgorithm, label
from parley._crypto.randomness import random_bytes
from parley._node.errors import ConfigError, NotTrustedError, UnreachableError
from parley._node.trust.words import EVEN, ODD


class CodeTextError(ConfigError):
    """Raised for an invalid code; the error names a misspelt word or the missing part."""


class WrongCodeError(NotTrustedError):
    """Raised if the other side has another code, so that its identity is unverified."""


class CodeGoneError(UnreachableError):
    """Raised if no peer waits for a code any longer, or no peer used it in time."""


class CodeReset(IntEnum):
    """The reasons for ending an exchange: the codes of its Reset (section 21)."""

    MALFORMED = 64
    WRONG = 65
    GONE = 66
    BUSY = 67


class ExchangeRefused(Exception):
    """Raised to end an exchange on the listening side; the peer receives `code` and `text`."""

    def __init__(self, code: CodeReset, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


LAST_SLOT: Final = 9_999
SLOT_SIZE: Final = 2  # bytes
SECONDS: Final = 600.0  # lifetime of a code

_BOUND_SIZE: Final = 32
_PASSWORD: Final = b"parley1 code words"
_SHAPE: Final = re.compile(r"[0-9]{1,9}(-[a-z]+){2}", re.ASCII)
# Blanks and hyphens, including the characters that word processors substitute for hyphens.
_GAPS: Final = re.compile(r"[\s\-\u00ad\u2010-\u2015\u2212\ufe58\ufe63\uff0d]+")
_DRAWN: Final = 99


@dataclass(frozen=True, slots=True)
class Code:
    """A short code: a slot (1 to 9,999) that locates the listening node, and two secret words.

    The words have 16 bits and authenticate one exchange.

    Example:

        from parley.codes import Code, draw_slot

        code = Code.draw(draw_slot())
        assert Code.parse(str(code)) == code
    """

    slot: int
    words: str = field(repr=False)

    @classmethod
    def draw(cls, slot: int) -> Self:
        """Return a code with random words."""
        first, second = random_bytes(2)
        return cls(slot, f"{ODD[first]}-{EVEN[second]}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a code as typed by a person; capitals and blanks are accepted.

        Raises:
            CodeTextError: it is not a valid code. The error suggests corrections of a misspelt
                word.
        """
        parts = _tidy(text).split("-")
        if len(parts) != 3 or not (parts[0].isascii() and parts[0].isdigit()):
            raise CodeTextError(
                f"invalid code {ascii(text)[:80]}: expected a number and two words, such as "
                "7-crossover-clockwork"
            )
        number, first, second = parts
        slot = int(number) if len(number) <= len(str(LAST_SLOT)) else 0
        if not 1 <= slot <= LAST_SLOT or number != str(slot):
            raise CodeTextError(
                f"invalid code {ascii(text)[:80]}: expected a number from 1 to {LAST_SLOT} at its "
                "beginning"
            )
        for word, words in ((first, ODD), (second, EVEN)):
            if word not in words:
                raise CodeTextError(_misspelt(word, words))
        return cls(slot, f"{first}-{second}")

    @property
    def password(self) -> bytes:
        """The password for the key exchange."""
        return _PASSWORD + self.slot.to_bytes(SLOT_SIZE) + self.words.encode()

    def context(self, hash: HashAlgorithm, exporter: bytes, session_id: bytes) -> bytes:
        """Return the context that binds a confirmation to one session; `hash` is the negotiated
        one.
        """
        bound = label(hash, exporter, "code", session_id, _BOUND_SIZE)
        return b"parley1 code session" + self.slot.to_bytes(SLOT_SIZE) + bound

    def __str__(self) -> str:
        return f"{self.slot}-{self.words}"


def looks_like_code(text: str) -> bool:
    """Return whether a text has the form of a code, even if its words are wrong."""
    return _SHAPE.fullmatch(_tidy(text)) is not None


def draw_slot() -> int:
    """Return a random slot below 100, which is easy to say, for use without a home."""
    while (number := random_bytes(1)[0]) >= 2 * _DRAWN:
        pass
    return number % _DRAWN + 1


def _tidy(text: str) -> str:
    return _GAPS.sub("-", text.strip().lower())


def _misspelt(word: str, words: tuple[str, ...]) -> str:
    near = get_close_matches(word, words, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "check the spelling"
    return f"invalid word {word[:40]!r} in a code: it is not in the word list; {hint}"
