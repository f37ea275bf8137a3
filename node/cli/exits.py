"""Exit codes, and which error ends a command with which.

One rule: every failure that a user can cause is one clear sentence and its exit code,
never a traceback.
"""

from dataclasses import dataclass
from enum import IntEnum

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


@dataclass(frozen=True)
class Failure:
    """How a command failed: `code` is the protocol's if there is one, else the exit code."""

    exit: Exit
    code: int
    name: str
    text: str


_UNREACHABLE_CODES = (CloseCode.CONNECTION_LOST, CloseCode.TIMEOUT)


def failure(error: BaseException) -> Failure | None:
    """What an error means for who typed the command; None for a bug of ours."""
    text = " ".join(str(error).split()) or type(error).__name__
    match error:
        case CallRefused():
            name = RESULT_SENTENCES.get(error.code, "refused").replace(" ", "-")
            return Failure(Exit.ANSWERED, error.code, name, _with_data(text, error.data))
        case NotTrustedError():
            return Failure(Exit.NOT_TRUSTED, error.code, code_name(error.code), text)
        case PeerClosedError() | HandshakeError() | StreamResetError() | ConnectionClosedError():
            return Failure(_closed_exit(error), error.code, code_name(error.code), text)
        case UnreachableError():
            return Failure(Exit.UNREACHABLE, Exit.UNREACHABLE, "unreachable", text)
        case KeyFileError() | KnownPeersError() | FileProblem():
            return Failure(Exit.FILE, Exit.FILE, "file", text)
        case TyperException() if error.exit_code == Exit.USAGE:
            return Failure(Exit.USAGE, Exit.USAGE, "usage", error.format_message())
        case AddressError() | ConfigError() | UnknownAlgorithmError() | LbmError():
            return Failure(Exit.USAGE, Exit.USAGE, "usage", text)
        case TyperException():
            return Failure(Exit.FAILED, Exit.FAILED, "failed", error.format_message())
        case ParleyError() | LocalProtocolError():
            return Failure(Exit.FAILED, Exit.FAILED, "failed", text)
        case OSError():
            return Failure(Exit.FILE, Exit.FILE, "file", text)
        case _:
            return None


def _closed_exit(error: BaseException) -> Exit:
    code = getattr(error, "code", None)
    if code == CloseCode.AUTHENTICATION_FAILED:
        return Exit.NOT_TRUSTED
    if isinstance(error, HandshakeError) and code in _UNREACHABLE_CODES:
        return Exit.UNREACHABLE
    return Exit.FAILED


def _with_data(text: str, data: object) -> str:
    return f"{text}: {data}" if isinstance(data, str) and data and data not in text else text
