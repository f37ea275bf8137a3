"""The errors of the core.

    ProtocolError
      LocalError               what the caller asked for was not done; the connection is unchanged
        LocalProtocolError     the protocol does not allow it: a mistake of the caller
        LimitReachedError      too many of something, or too often
        PayloadTooLargeError   more than the agreed max_payload
        ConnectionClosedError  the connection is over or closing; carries its code
      RemoteProtocolError      the peer broke a rule; the connection ends with `code`
        SilenceError           nothing was received for too long
        RejectedError          the responder answered Reject
        NoCommonAlgorithmError  nothing in common for one parameter

`code` is the close code, as a plain int.
"""

from parley._lbm.errors import ParleyError
from parley._node.protocol.codes import FIRST_APPLICATION_CODE, LAST_CODE, SENTENCES, CloseCode
from parley._node.protocol.limits import TEXT_SIZE

# Those of ours that Close and Reset may carry: one code is that of Reject alone.
_ASSIGNED = frozenset(code for code in CloseCode if code >= 0 and code != CloseCode.UNKNOWN_SESSION)


class ProtocolError(ParleyError):
    """Root of the core's errors."""

    code: int = int(CloseCode.PROTOCOL_ERROR)


class LocalError(ProtocolError):
    """What the caller asked for was not done; the connection is unchanged."""

    code: int = int(CloseCode.INTERNAL_ERROR)


class LocalProtocolError(LocalError):
    """The protocol doesn't allow what the caller asked for."""


class LimitReachedError(LocalError):
    """Too many requests, streams or the like are open, or something was done too often."""


class PayloadTooLargeError(LocalError):
    """A payload is longer than the agreed `max_payload`; it was not sent."""


class ConnectionClosedError(LocalError):
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
    """Nothing was received for so long that the transport may be dead. A session that can be
    resumed is suspended; any other ends with `code`."""


class NoCommonAlgorithmError(RemoteProtocolError):
    """Nothing in common for one parameter, which Reject names."""

    def __init__(self, parameter: str) -> None:
        super().__init__(CloseCode.NO_COMMON_ALGORITHM, f"no common {parameter} algorithm")
        self.parameter = parameter


class RejectedError(RemoteProtocolError):
    """The responder answered Reject; `code` is its code, `text` its sentence."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(CloseCode.PROTOCOL_ERROR, f"rejected: {text}")
        self.code = code
        self.text = text


def check_close(code: int, text: str, last: CloseCode) -> None:
    """Check the code and text of Close or Reset; `last` is the greatest protocol code allowed.

    Raises:
        ValueError: another code, or more than 1,024 bytes of text (in UTF-8).
    """
    assigned = code in _ASSIGNED and code <= last
    if not (assigned or FIRST_APPLICATION_CODE <= code <= LAST_CODE):
        raise ValueError(f"{code} is not a code for it")
    if len(text.encode()) > TEXT_SIZE:
        raise ValueError(f"a text of {len(text.encode())} bytes; at most {TEXT_SIZE}")


def violation(reason: str) -> RemoteProtocolError:
    """Return a `protocol-error`."""
    return RemoteProtocolError(CloseCode.PROTOCOL_ERROR, reason)


def overloaded(reason: str) -> RemoteProtocolError:
    """Return an `overloaded`: more of something than is allowed (section 14)."""
    return RemoteProtocolError(CloseCode.OVERLOADED, reason)


def too_large(reason: str) -> RemoteProtocolError:
    """Return a `frame-too-large`, for a frame or a payload."""
    return RemoteProtocolError(CloseCode.FRAME_TOO_LARGE, reason)
