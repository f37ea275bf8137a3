"""What goes wrong with a short code."""

from enum import IntEnum

from parley._node.errors import ConfigError, NotTrustedError, UnreachableError


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
