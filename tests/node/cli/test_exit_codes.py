"""Which error ends a command with which exit code, and in which words."""

from datetime import UTC, datetime
from pathlib import Path
from signal import Signals

import pytest
from click import ClickException

from parley._crypto.errors import (
    KeyFileTooOpenError,
    StatementError,
    UnknownAlgorithmError,
    WrongPassphraseError,
)
from parley._crypto.identity import NodeId
from parley._lbm.errors import LbmEncodeError
from parley._node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusDamagedError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
    InvalidEventError,
    NotPendingError,
    SchemaViolationError,
)
from parley._node.cli.exit_codes import Exit, InterruptedCommandError, failure
from parley._node.cli.output import CommandFailure
from parley._node.errors import (
    AddressError,
    CallRefused,
    CallTimeout,
    ConfigError,
    FileError,
    HandshakeError,
    IdentityChangedError,
    IdentityEndedError,
    InsecureAddressError,
    KeyStatementsError,
    KnownPeersError,
    NotSpokenError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    RelayRefusedError,
    StreamResetError,
    UnreachableError,
    UnreadRepliesError,
)
from parley._node.journal.errors import JournalBusyError, JournalFailedError
from parley._node.logs import one_line
from parley._node.messaging.formats import FormatError
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import ConnectionClosedError, PayloadTooLargeError
from tests.sweep import sweep

EXPECTED: list[tuple[Exception, int, int, str]] = [
    (CallRefused(1), Exit.ANSWERED, 1, "topic-not-found"),
    (CallRefused(64), Exit.ANSWERED, 64, "refused"),
    (CallTimeout(), Exit.ANSWERED, ResultCode.DEADLINE_EXCEEDED, "the-deadline-passed"),
    (NotTrustedError("no"), Exit.NOT_TRUSTED, CloseCode.PEER_NOT_TRUSTED, "peer-not-trusted"),
    (HandshakeError(5), Exit.NOT_TRUSTED, 5, "authentication-failed"),
    (PeerClosedError(5), Exit.NOT_TRUSTED, 5, "authentication-failed"),
    (HandshakeError(6), Exit.FAILED, 6, "no-common-algorithm"),
    (HandshakeError(CloseCode.TIMEOUT), Exit.UNREACHABLE, 10, "timeout"),
    (HandshakeError(CloseCode.CONNECTION_LOST), Exit.UNREACHABLE, -1, "connection-lost"),
    (PeerClosedError(CloseCode.CONNECTION_LOST), Exit.FAILED, -1, "connection-lost"),
    (PeerClosedError(CloseCode.TIMEOUT), Exit.FAILED, 10, "timeout"),
    (ConnectionClosedError(1), Exit.FAILED, 1, "going-away"),
    (StreamResetError(34), Exit.FAILED, 34, "no-handler"),
    (StreamResetError(70), Exit.FAILED, 70, "70"),
    (UnreachableError("nobody"), Exit.UNREACHABLE, 3, "unreachable"),
    (KeyFileTooOpenError("chmod"), Exit.FILE, 6, "file"),
    (WrongPassphraseError("wrong"), Exit.FILE, 6, "file"),
    (KnownPeersError("line 3"), Exit.FILE, 6, "file"),
    (KeyStatementsError("line 3"), Exit.FILE, 6, "file"),
    (StatementError("consent", "it does not verify", "FILE"), Exit.FILE, 6, "file"),
    (
        IdentityEndedError("it has ended", node_id=NodeId(bytes(32)), successor=None),
        *(Exit.NOT_TRUSTED, 5, "authentication-failed"),
    ),
    (FileError("none"), Exit.FILE, 6, "file"),
    (JournalBusyError("another"), Exit.FILE, 6, "file"),
    (JournalFailedError("full"), Exit.FILE, 6, "file"),
    (OSError(28, "No space left on device"), Exit.FILE, 6, "file"),
    (AddressError("tcp"), Exit.USAGE, 2, "usage"),
    (ConfigError("setting"), Exit.USAGE, 2, "usage"),
    (InsecureAddressError("tcp://0.0.0.0:1"), Exit.USAGE, 2, "usage"),
    (FormatError("no form"), Exit.USAGE, 2, "usage"),
    (UnknownAlgorithmError("rot13"), Exit.USAGE, 2, "usage"),
    (LbmEncodeError("surrogate"), Exit.USAGE, 2, "usage"),
    (InterruptedCommandError(Signals.SIGINT), 130, 130, "interrupted"),
    (InterruptedCommandError(Signals.SIGTERM), 143, 143, "interrupted"),
    (RelayRefusedError(4, "no"), Exit.FAILED, 1, "failed"),
    (NotSpokenError("named events", "calls"), Exit.FAILED, 1, "failed"),
    (UnreadRepliesError(), Exit.FAILED, 1, "failed"),
    (PayloadTooLargeError("too long"), Exit.FAILED, 1, "failed"),
    (BusUnavailableError("no answer"), Exit.UNREACHABLE, 3, "unreachable"),
    (BusRefusedError("no"), Exit.ANSWERED, ResultCode.NOT_AUTHORISED, "not-authorised"),
    (BusBusyError("another"), Exit.FILE, 6, "file"),
    (BusFullError("full"), Exit.FILE, 6, "file"),
    (BusDamagedError("no bus"), Exit.FILE, 6, "file"),
    (InvalidEventError("no name"), Exit.USAGE, 2, "usage"),
    (SchemaViolationError("a.b", "", "no"), Exit.USAGE, 2, "usage"),
    (BusClosedError("closed"), Exit.FAILED, 1, "failed"),
    (NotPendingError("gone"), Exit.FAILED, 1, "failed"),
    (ParleyError("other"), Exit.FAILED, 1, "failed"),
    (ClickException("odd"), Exit.FAILED, 1, "failed"),
]


@sweep(("error", "code", "number", "name"), EXPECTED, ids=[repr(case[0]) for case in EXPECTED])
def test_each_error_has_its_exit(error: Exception, code: int, number: int, name: str) -> None:
    found = failure(error)
    assert found is not None
    assert (found.exit, found.code, found.name) == (code, number, name)
    assert found.text
    assert found.text.isprintable()


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), AssertionError(), SystemExit(3)])
def test_bugs_are_no_failures_of_the_user(error: BaseException) -> None:
    assert failure(error) is None


def _found(error: Exception) -> CommandFailure:
    found = failure(error)
    assert found is not None
    return found


def test_the_text_of_another_node_is_one_harmless_line() -> None:
    text = _found(PeerClosedError(70, "bye\r\n2026 ERROR forged\x1b[2J\x9b\u202e")).text
    assert text == "bye 2026 ERROR forged\\x1b[2J\\x9b\\u202e (70)"


def test_a_refusal_says_and_carries_what_came_with_it() -> None:
    found = _found(CallRefused(64, "not\x1b today"))
    assert found.text == "refused (code 64): not\\x1b today"
    assert found.data == "not\x1b today"
    found = _found(CallRefused(64, {"why": [1, b"\xff"]}))
    assert found.text == 'refused (code 64): {"why": [1, "ff"]}'
    assert found.data == {"why": [1, b"\xff"]}
    assert _found(CallRefused(64)).text == "refused (code 64)"


def test_a_refusal_that_is_very_long_is_cut() -> None:
    assert len(_found(CallRefused(64, "x" * 100_000)).text) < 600


def test_an_error_of_the_system_names_its_file() -> None:
    assert _found(OSError(28, "No space left on device")).text == "No space left on device"
    named = PermissionError(13, "Permission denied", "/etc/x")
    assert _found(named).text == "cannot use '/etc/x': Permission denied"


def test_an_error_without_words_has_its_name() -> None:
    assert _found(ParleyError()).text == "ParleyError"
    assert _found(ClickException("")).text == "a command is missing"


def test_a_changed_id_is_a_warning_of_many_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path / "elsewhere"))
    old, new = NodeId(b"\x01" * 32), NodeId(b"\x02" * 32)
    error = IdentityChangedError(
        "it changed",
        name="tcp://127.0.0.1:1",
        old=old,
        new=new,
        first_seen=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
        path=tmp_path / "known peers",
    )
    found = _found(error)
    assert (found.exit, found.code, found.name) == (Exit.NOT_TRUSTED, -2, "peer-not-trusted")
    assert found.text == "it changed (peer-not-trusted)"
    assert f"was   {old}  since 2026-03-04T05:06:07Z" in found.shown
    assert f"is    {new}" in found.shown
    mend = f"parley peers forget {old} --known-peers '{tmp_path}/known peers'"
    assert f"\n    {mend}\n" in found.shown
    assert found.fields == {
        "peer": "tcp://127.0.0.1:1",
        "old_node_id": str(old),
        "new_node_id": str(new),
        "first_seen": "2026-03-04T05:06:07Z",
        "known_peers": str(tmp_path / "known peers"),
        "mend": mend,
    }
    # The default file is not named.
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path))
    error.path = tmp_path / "known_peers"
    assert _found(error).fields["mend"] == f"parley peers forget {old}"
    monkeypatch.delenv("PARLEY_HOME")
    monkeypatch.setattr(Path, "expanduser", _homeless)
    assert _found(error).fields["mend"].endswith(f"--known-peers {error.path}")


def test_the_command_for_an_ended_id_can_be_copied() -> None:
    old, new = NodeId(b"\x01" * 32), NodeId(b"\x02" * 32)
    text = f"it has ended; run: parley peers accept {old}"
    found = _found(IdentityEndedError(text, node_id=old, successor=None))
    assert found.text == f"{text} (authentication-failed)"
    assert found.shown == text
    assert found.fields == {"old_node_id": str(old)}
    found = _found(IdentityEndedError(text, node_id=old, successor=new))
    assert found.fields == {"old_node_id": str(old), "new_node_id": str(new)}


def _homeless(path: Path) -> Path:
    raise RuntimeError("no home")


def test_one_line_leaves_what_can_be_read() -> None:
    assert one_line("café, 日本 ✓") == "café, 日本 ✓"
    assert one_line("a\nb\tc\0\udc80") == "a\\nb\\tc\\x00\\udc80"
