"""Exit codes, and the mapping of each error to an exit code and a message."""

import os
import shlex
from enum import IntEnum
from pathlib import Path
from signal import Signals

from click import ClickException

from parley._crypto.errors import (
    IdentityError,
    KeyFileError,
    StatementError,
    UnknownAlgorithmError,
)
from parley._lbm.errors import LbmError
from parley._node.bus.errors import (
    BusBusyError,
    BusDamagedError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
    InvalidEventError,
)
from parley._node.cli.output import CommandFailure, format_value
from parley._node.errors import (
    AddressError,
    CallRefused,
    ConfigError,
    FileError,
    HandshakeError,
    IdentityChangedError,
    IdentityEndedError,
    KeyStatementsError,
    KnownPeersError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
    TunnelRefusedError,
    UnreachableError,
    os_reason,
)
from parley._node.journal.errors import JournalError
from parley._node.logs import one_line
from parley._node.messaging.formats import FormatError
from parley._node.protocol.codes import RESULT_SENTENCES, CloseCode, ResultCode, code_name
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.trust.files import utc_text


class Exit(IntEnum):
    """The exit codes of commands."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_TRUSTED = 4
    ANSWERED = 5  # with a code other than 0, or refused by a bus
    FILE = 6  # a file or key problem
    FINDINGS = 7  # a journal does not verify, or a group of a bus lags behind


class InterruptedCommandError(ParleyError):
    """A signal ended a command early."""

    def __init__(self, signal: Signals) -> None:
        super().__init__(f"interrupted by {signal.name}")
        self.exit = 128 + signal  # as shells do


# Maximum number of characters to quote from another node's text.
LONGEST_QUOTE = 500
_IDENTITY_CHANGED = """\
WARNING: THE ID BEHIND {name} HAS CHANGED

    was   {old}  since {since}
    is    {new}

  Another node may be impersonating it: no data was sent to it. It may also have been
  reinstalled: confirm the new node id with its operator over a separate channel.

  If its operator has given you a statement about the new id, store it with
  `parley peers apply FILE`. Otherwise, if the change is known to be right, forget the old id
  and try again:

    {mend}
"""
_UNREACHABLE_CODES = (CloseCode.CONNECTION_LOST, CloseCode.TIMEOUT)


def failure(error: BaseException) -> CommandFailure | None:
    """Return the failure to report for an error; None if the error is a bug."""
    text = _sentence(error)
    match error:
        case CallRefused():
            text = _with_data(one_line(error.summary), error.data)
            name = _result_name(error.code)
            return CommandFailure(Exit.ANSWERED, error.code, name, text, "result", error.data)
        case IdentityChangedError():
            return identity_changed(error, text)
        case IdentityEndedError():
            return _identity_ended(error, text)
        case NotTrustedError():
            return CommandFailure(
                Exit.NOT_TRUSTED, error.code, code_name(error.code), text, "close"
            )
        case PeerClosedError() | HandshakeError() | StreamResetError() | ConnectionClosedError():
            name = code_name(error.code)
            return CommandFailure(_closed_exit(error), error.code, name, text, "close")
        case BusRefusedError():
            code = ResultCode.NOT_AUTHORISED
            return CommandFailure(Exit.ANSWERED, code, "not-authorised", text, "result")
        case TunnelRefusedError():
            name = _result_name(error.code)
            return CommandFailure(Exit.UNREACHABLE, error.code, name, text, "result")
        case UnreachableError() | BusUnavailableError():
            return CommandFailure(Exit.UNREACHABLE, Exit.UNREACHABLE, "unreachable", text)
        case KeyFileError() | StatementError() | KnownPeersError() | KeyStatementsError():
            return CommandFailure(Exit.FILE, Exit.FILE, "file", text)
        case FileError() | JournalError():
            return CommandFailure(Exit.FILE, Exit.FILE, "file", text)
        case BusBusyError() | BusFullError() | BusDamagedError():
            return CommandFailure(Exit.FILE, Exit.FILE, "file", text)
        case ClickException() if error.exit_code == Exit.USAGE:
            return CommandFailure(Exit.USAGE, Exit.USAGE, "usage", text)
        case AddressError() | ConfigError() | LbmError() | FormatError():
            return CommandFailure(Exit.USAGE, Exit.USAGE, "usage", text)
        case UnknownAlgorithmError() | IdentityError():
            return CommandFailure(Exit.USAGE, Exit.USAGE, "usage", text)
        case InvalidEventError():
            return CommandFailure(Exit.USAGE, Exit.USAGE, "usage", text)
        case InterruptedCommandError():
            return CommandFailure(error.exit, error.exit, "interrupted", text)
        case ClickException() | ParleyError():
            return CommandFailure(Exit.FAILED, Exit.FAILED, "failed", text)
        case OSError():
            return CommandFailure(Exit.FILE, Exit.FILE, "file", text)
        case _:
            return None


def identity_changed(error: IdentityChangedError, text: str) -> CommandFailure:
    """Return the failure for a name whose node ID has changed, with a prominent warning."""
    since = utc_text(error.first_seen)
    mend = f"parley peers forget {error.old}"
    if not _is_default(error.path):
        mend += f" --known-peers {shlex.quote(str(error.path))}"
    shown = _IDENTITY_CHANGED.format(
        name=one_line(error.name), old=error.old, new=error.new, since=since, mend=one_line(mend)
    )
    fields = {
        "peer": error.name,
        "old_node_id": str(error.old),
        "new_node_id": str(error.new),
        "first_seen": since,
        "known_peers": str(error.path),
        "mend": mend,
    }
    return _not_trusted(error, text, shown, fields)


def _identity_ended(error: IdentityEndedError, text: str) -> CommandFailure:
    from parley._node.trust.ended_ids import OWNER
    from parley._node.trust.petnames import Petnames

    # Only the name on the line of the ended ID itself, whatever the settings of a server.
    known = Petnames.of_home(follow=False).known_by(error.node_id)
    fields = {"old_node_id": str(error.node_id), **known}
    if error.successor is not None:
        fields["new_node_id"] = str(error.successor)
    # Without the name of the code, which would follow the command that the text ends with.
    shown = one_line(error.text)
    if known:
        text, shown = (one.replace(OWNER, known["petname"]) for one in (text, shown))
    return _not_trusted(error, text, shown, fields)


def _not_trusted(
    error: NotTrustedError, text: str, shown: str, fields: dict[str, str]
) -> CommandFailure:
    return CommandFailure(
        Exit.NOT_TRUSTED,
        error.code,
        code_name(error.code),
        text,
        "close",
        shown=shown,
        fields=fields,
    )


def _sentence(error: BaseException) -> str:
    if isinstance(error, ClickException):
        text = error.format_message() or "a command is missing"
    elif isinstance(error, OSError):
        reason = os_reason(error)
        text = f"cannot use '{error.filename}': {reason}" if error.filename else reason
        if error.filename == "standard output":  # set by `output.stdout_errors`
            text = f"cannot write to standard output: {reason}"
    else:
        text = str(error) or type(error).__name__
    return one_line(" ".join(text.split()))


def _is_default(path: Path) -> bool:
    from parley._node.trust.known_peers import default_known_peers

    try:
        return os.path.realpath(default_known_peers()) == str(path)
    except ConfigError:
        return False


def _closed_exit(error: BaseException) -> Exit:
    code = getattr(error, "code", None)
    if code == CloseCode.AUTHENTICATION_FAILED:
        return Exit.NOT_TRUSTED
    if isinstance(error, HandshakeError) and code in _UNREACHABLE_CODES:
        return Exit.UNREACHABLE
    return Exit.FAILED


def _result_name(code: int) -> str:
    return RESULT_SENTENCES.get(code, "refused").replace(" ", "-")


def _with_data(text: str, data: object) -> str:
    shown = "" if data is None else format_value(data)
    if not shown or shown in text:
        return text
    if len(shown) > LONGEST_QUOTE:
        shown = shown[:LONGEST_QUOTE] + "..."
    return f"{text}: {one_line(shown)}"
