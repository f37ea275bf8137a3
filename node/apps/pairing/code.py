"""A short code: a slot and two words, such as `7-crossover-clockwork` (section 21)."""

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from typing import Final, Self

from parley._crypto.hashing import HashAlgorithm, label
from parley._crypto.randomness import random_bytes
from parley._node.errors import ConfigError, NotTrustedError, UnreachableError
from parley._node.trust.petnames import EVEN, ODD


class CodeTextError(ConfigError):
    """A text is not a code: a word is misspelt, or something is missing."""


class WrongCodeError(NotTrustedError):
    """The other side has another code, so that nobody knows who it is."""


class CodeGoneError(UnreachableError):
    """Nobody waits for a code any more, or nobody came for it."""


class CodeReset(IntEnum):
    """Why an exchange ends: the code of its Reset (section 21)."""

    MALFORMED = 64
    WRONG = 65
    GONE = 66
    BUSY = 67


class ExchangeRefused(Exception):
    """A giver does not go on; the taker is told `code` and a sentence."""

    def __init__(self, code: CodeReset, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


LAST_SLOT: Final = 9_999
SLOT_SIZE: Final = 2  # bytes
SECONDS: Final = 600.0  # that a code is good for

_BOUND_SIZE: Final = 32
_PASSWORD: Final = b"parley1 code words"
_SHAPE: Final = re.compile(r"[0-9]{1,9}(-[a-z]+){2}", re.ASCII)
# Blanks and hyphens, also those that word processors and messengers make of a hyphen.
_GAPS: Final = re.compile(r"[\s\-\u00ad\u2010-\u2015\u2212\ufe58\ufe63\uff0d]+")
_DRAWN: Final = 99


@dataclass(frozen=True, slots=True)
class Code:
    """A slot, 1 to 9,999, where the giver is found, and the words that prove who it is: 16 bits,
    which are for one meeting."""

    slot: int
    words: str = field(repr=False)

    @classmethod
    def draw(cls, slot: int) -> Self:
        """A code with fresh words."""
        first, second = random_bytes(2)
        return cls(slot, f"{ODD[first]}-{EVEN[second]}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what somebody typed: capitals and blanks do as well.

        Raises:
            CodeTextError: it is not a code. It names a misspelt word, and what may be meant.
        """
        parts = _tidy(text).split("-")
        if len(parts) != 3 or not (parts[0].isascii() and parts[0].isdigit()):
            raise CodeTextError(
                f"{ascii(text)[:80]} is not a code: a number and two words, such as "
                "7-crossover-clockwork"
            )
        number, first, second = parts
        slot = int(number) if len(number) <= len(str(LAST_SLOT)) else 0
        if not 1 <= slot <= LAST_SLOT or number != str(slot):
            raise CodeTextError(f"a code begins with a number of 1 to {LAST_SLOT}")
        for word, words in ((first, ODD), (second, EVEN)):
            if word not in words:
                raise CodeTextError(_misspelt(word, words))
        return cls(slot, f"{first}-{second}")

    @property
    def password(self) -> bytes:
        """What the exchange hashes."""
        return _PASSWORD + self.slot.to_bytes(SLOT_SIZE) + self.words.encode()

    def context(self, hash: HashAlgorithm, exporter: bytes, session_id: bytes) -> bytes:
        """What makes a confirmation good in one session alone; `hash` is the negotiated one."""
        bound = label(hash, exporter, "code", session_id, _BOUND_SIZE)
        return b"parley1 code session" + self.slot.to_bytes(SLOT_SIZE) + bound

    def __str__(self) -> str:
        return f"{self.slot}-{self.words}"


def looks_like_code(text: str) -> bool:
    """Whether a text is meant as a code, its words right or not."""
    return _SHAPE.fullmatch(_tidy(text)) is not None


def draw_slot() -> int:
    """A slot where no home gives one: of two digits at most, since people say it to each other."""
    while (number := random_bytes(1)[0]) >= 2 * _DRAWN:
        pass
    return number % _DRAWN + 1


def _tidy(text: str) -> str:
    return _GAPS.sub("-", text.strip().lower())


def _misspelt(word: str, words: tuple[str, ...]) -> str:
    near = get_close_matches(word, words, n=3, cutoff=0.6)
    hint = f"; is it {' or '.join(near)}?" if near else ""
    return f"{word[:40]!r} is not a word that stands there in a code{hint}"
