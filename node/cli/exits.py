"""Exit codes, and which error ends a command with which.

One rule: every failure that a user can cause is one clear sentence and its exit code,
never a traceback.
"""

from dataclasses import dataclass
from enum import IntEnum
from signal import Signals

from typer import TyperException

from crypto.errors import KeyFileError, UnknownAlgorithmError
from lbm.errors import LbmError
from node.errors import (
    RESULT_SENTENCES,
    AddressError,
    CallRefused,
    ConfigError,
    HandshakeError,
    KnownPeersError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
    UnreachableError,
)
from node.protocol.codes import CloseCode, code_name
from node.protocol.errors import ConnectionClosedError, LocalProtocolError


class Exit(IntEnum):
    """What a command's exit code says."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_TRUSTED = 4
    ANSWERED = 5  # with a code other than 0
    FILE = 6  # a file or key problem


class FileProblem(ParleyError):
    """A file that a command was given cannot be used."""


class Interrupted(ParleyError):
    """A signal ended a command before it was done."""

    def __init__(self, signal: Signals) -> None:
        super().__init__(f"interrupted by {signal.name}")
        self.exit = 128 + signal  # as shells have it


@dataclass(frozen=True)
class Failure:
    """How a command failed: `code` is the protocol's if there is one, else the exit code."""

    exit: int
    code: int
    name: str
    text: str
    data: object = None  # what came with an answer that was a refusal


# Characters of another node's text that a sentence of ours quotes.
_LONGEST_QUOTE = 500
_UNREACHABLE_CODES = (CloseCode.CONNECTION_LOST, CloseCode.TIMEOUT)


def failure(error: BaseException) -> Failure | None:
    """What an error means for who typed the command; None for a bug of ours."""
    text = _sentence(error)
    match error:
        case CallRefused():
            name = RESULT_SENTENCES.get(error.code, "refused").replace(" ", "-")
            text = _with_data(text, error.data)
            return Failure(Exit.ANSWERED, error.code, name, text, error.data)
        case NotTrustedError():
            return Failure(Exit.NOT_TRUSTED, error.code, code_name(error.code), text)
        case PeerClosedError() | HandshakeError() | StreamResetError() | ConnectionClosedError():
            return Failure(_closed_exit(error), error.code, code_name(error.code), text)
        case UnreachableError():
            return Failure(Exit.UNREACHABLE, Exit.UNREACHABLE, "unreachable", text)
        case KeyFileError() | KnownPeersError() | FileProblem():
            return Failure(Exit.FILE, Exit.FILE, "file", text)
        case TyperException() if error.exit_code == Exit.USAGE:
            return Failure(Exit.USAGE, Exit.USAGE, "usage", text)
        case AddressError() | ConfigError() | UnknownAlgorithmError() | LbmError():
            return Failure(Exit.USAGE, Exit.USAGE, "usage", text)
        case Interrupted():
            return Failure(error.exit, error.exit, "interrupted", text)
        case TyperException() | ParleyError() | LocalProtocolError():
            return Failure(Exit.FAILED, Exit.FAILED, "failed", text)
        case OSError():
            return Failure(Exit.FILE, Exit.FILE, "file", text)
        case _:
            return None


def one_line(text: str) -> str:
    """The text with its line ends and other control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _sentence(error: BaseException) -> str:
    if isinstance(error, TyperException):
        text = error.format_message() or "a command is missing"
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error) or type(error).__name__
    return one_line(" ".join(text.split()))


def _closed_exit(error: BaseException) -> Exit:
    code = getattr(error, "code", None)
    if code == CloseCode.AUTHENTICATION_FAILED:
        return Exit.NOT_TRUSTED
    if isinstance(error, HandshakeError) and code in _UNREACHABLE_CODES:
        return Exit.UNREACHABLE
    return Exit.FAILED


def _with_data(text: str, data: object) -> str:
    if not isinstance(data, str) or not data or data in text:
        return text
    shown = data if len(data) <= _LONGEST_QUOTE else data[:_LONGEST_QUOTE] + "..."
    return f"{text}: {one_line(shown)}"
