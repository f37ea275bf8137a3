"""The errors of the core.

    ProtocolError
      LocalProtocolError       we may not do that now; the connection is unchanged
        PayloadTooLargeError   more than the agreed max_payload
        ConnectionClosedError  the connection is over or closing; carries its code
      RemoteProtocolError      they broke the rules; the connection ends with `code`
        SilenceError           or their transport is dead

An error carries its close code, so that closing rightly is never a second decision. It is a plain
int, in errors and in reports: a compiled core has no other.
"""

from parley._node.protocol.codes import FIRST_APPLICATION_CODE, LAST_CODE, SENTENCES, CloseCode
from parley._node.protocol.limits import TEXT_SIZE

# Those of ours that Close and Reset may carry: one code is that of Reject alone.
_ASSIGNED = frozenset(code for code in CloseCode if code >= 0 and code != CloseCode.UNKNOWN_SESSION)


class ProtocolError(Exception):
    """Root of the core's errors."""

    code: int = int(CloseCode.PROTOCOL_ERROR)


class LocalProtocolError(ProtocolError):
    """The caller asked for what the protocol does not allow now; nothing changed."""

    code: int = int(CloseCode.INTERNAL_ERROR)


class PayloadTooLargeError(LocalProtocolError):
    """A payload is longer than the agreed `max_payload`; it was not sent."""


class ConnectionClosedError(LocalProtocolError):
    """The connection is over; `code` and `text` say why (section 11)."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or SENTENCES.get(code, f"closed with code {code}"))
        self.code = int(code)


class RemoteProtocolError(ProtocolError):
    """The other side broke a rule. `reason` is for the local log, never for the wire."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = int(code)
        self.reason = reason


class SilenceError(RemoteProtocolError):
    """Nothing came for so long that the transport may be dead. A session that can be resumed
    parts; any other ends with `code`."""


def check_close(code: int, text: str, last: CloseCode) -> None:
    """What Close or Reset is to carry; `last` is the greatest code of ours that it may.

    Raises:
        ValueError: another code, or more than 1,024 bytes of text (in UTF-8).
    """
    assigned = code in _ASSIGNED and code <= last
    if not (assigned or FIRST_APPLICATION_CODE <= code <= LAST_CODE):
        raise ValueError(f"{code} is not a code for it")
    if len(text.encode()) > TEXT_SIZE:
        raise ValueError(f"a text of {len(text.encode())} bytes; at most {TEXT_SIZE}")


def violation(reason: str) -> RemoteProtocolError:
    """A `protocol-error`, the most frequent of all."""
    return RemoteProtocolError(CloseCode.PROTOCOL_ERROR, reason)


def overloaded(reason: str) -> RemoteProtocolError:
    """An `overloaded`: more of something than is allowed (section 14)."""
    return RemoteProtocolError(CloseCode.OVERLOADED, reason)


def too_large(reason: str) -> RemoteProtocolError:
    """A `frame-too-large`: a frame, or a payload inside a frame of allowed length."""
    return RemoteProtocolError(CloseCode.FRAME_TOO_LARGE, reason)
