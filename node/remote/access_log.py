"""The access log `parley.access`: connections opened and closed, and refused requests."""

import logging
from typing import Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.logs import RateLimitedLogger
from parley._node.protocol.codes import RESULT_SENTENCES, code_name

logger: Final = logging.getLogger("parley.access")

# How many characters of a name are logged, because peers choose names of any length.
LONGEST_NAME: Final = 200


class Party(Protocol):
    """The other side of a connection, as the access log names it."""

    name: str

    @property
    def node_id(self) -> NodeId | None:
        """The authenticated node ID, or None."""


def party(peer: Party) -> dict[str, object]:
    """Return the fields of every line about `peer`."""
    return {"peer": peer.node_id, "address": peer.name}


def log_answered(peer: Party, kind: str, name: str, code: int, seconds: float) -> None:
    """Log the result of a request, on level debug."""
    logger.debug(
        "%s: %s %r answered in %.1f ms: %s",
        peer,
        kind,
        name[:LONGEST_NAME],
        seconds * 1_000,
        (RESULT_SENTENCES.get(code) or code_name(code)) if code else "ok",
        extra={
            "event": "request.answered",
            **party(peer),
            "kind": kind,
            "topic": name[:LONGEST_NAME],
            "code": int(code),
            "seconds": seconds,
        },
    )


def log_refused(
    ration: RateLimitedLogger, peer: Party, kind: str, name: str, code: int, now: float
) -> None:
    """Log a refused request of a `kind` (call, topic, event, stream, bus), with a code of Result or
    Reset."""
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}.."
    ration.log(
        logger,
        logging.INFO,
        now,
        "%s: %s %r is refused: %s",
        peer,
        kind,
        name,
        RESULT_SENTENCES.get(code) or code_name(code),
        extra={
            "event": "request.refused",
            **party(peer),
            "kind": kind,
            "topic": name,
            "code": code,
        },
    )
