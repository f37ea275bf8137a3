"""Tests of node/errors.py: one class hierarchy, the codes of the wire, and the texts."""

import anyio
import pytest

from parley._node import errors
from parley._node.errors import (
    AddressError,
    CallRefused,
    CallTimeout,
    ConfigError,
    HandshakeError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    StreamResetError,
    UnreachableError,
    handshake_error,
    os_reason,
)
from parley._node.protocol.codes import RESULT_SENTENCES, CloseCode, ResultCode


def test_every_error_is_a_parley_error_in_the_documented_tree() -> None:
    found = [
        thing
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, Exception) and not name.startswith("_")
    ]
    ours = [error for error in found if error.__module__ == "parley._node.errors"]
    assert len(ours) > 14
    for error in ours:
        assert issubclass(error, ParleyError)
        assert error.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AddressError("x"), ValueError),
        (ConfigError("x"), ValueError),
        (UnreachableError("x"), OSError),
        (PeerClosedError(1), anyio.BrokenResourceError),
        (StreamResetError(32), anyio.BrokenResourceError),
        (CallTimeout(), TimeoutError),
        (CallTimeout(), CallRefused),
        (NotTrustedError(), HandshakeError),
    ],
)
def test_errors_inherit_from_builtin_errors(error: Exception, kind: type) -> None:
    assert isinstance(error, kind)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PeerClosedError(CloseCode.GOING_AWAY), "the node is going away (going-away)"),
        (PeerClosedError(70, "tea time"), "tea time (70)"),
        (StreamResetError(99), "closed by the peer (99)"),
        (UnreachableError("nobody listens"), "nobody listens"),
        (UnreachableError(), ""),
        (
            CallRefused(ResultCode.HANDLER_FAILED, "data"),
            "the handler failed (code 16, handler-failed): 'data'",
        ),
        (CallRefused(99), "refused (code 99)"),
        (CallRefused(99, {"why": "sold out"}), "refused (code 99): {'why': 'sold out'}"),
        (CallTimeout(), "the deadline passed (code 17, deadline-exceeded)"),
        (NotTrustedError("who?"), "who? (peer-not-trusted)"),
    ],
)
def test_error_texts(error: Exception, text: str) -> None:
    assert str(error) == text


def test_a_refusal_quotes_the_beginning_of_its_data() -> None:
    for data in ("x\n\x1b" * 1_000, [["y" * 100] * 100] * 100, {str(n): n for n in range(10_000)}):
        text = str(CallRefused(64, data))
        assert text.startswith("refused (code 64): ")
        assert len(text) < 400
        assert text.isprintable()


@pytest.mark.parametrize("code", [True, 0, -1, 2**32])
def test_a_refusal_has_a_code_of_the_wire(code: int) -> None:
    with pytest.raises(ValueError, match="invalid refusal code"):
        CallRefused(code)


def test_each_result_code_has_a_text() -> None:
    assert {code for code in ResultCode if code >= 16} <= RESULT_SENTENCES.keys()


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (CloseCode.PEER_NOT_TRUSTED, NotTrustedError, "our reason (peer-not-trusted)"),
        (CloseCode.AUTHENTICATION_FAILED, NotTrustedError, "their text (authentication-failed)"),
        (CloseCode.NO_COMMON_ALGORITHM, HandshakeError, "their text (no-common-algorithm)"),
        (
            CloseCode.CONNECTION_LOST,
            HandshakeError,
            "the other side closed the connection during the handshake (connection-lost)",
        ),
    ],
)
def test_how_a_handshake_ended(code: int, kind: type, text: str) -> None:
    error = handshake_error(code, "their text", "our reason")
    assert type(error) is kind
    assert error.code == code
    assert str(error) == text


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(13, "Permission denied", "/etc/x"), "Permission denied"),
        (OSError("no more space"), "no more space"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_the_reason_of_an_os_error_is_never_none(error: OSError, reason: str) -> None:
    assert os_reason(error) == reason
