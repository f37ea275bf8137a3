"""The access log, `parley.access`: who came and who went, and which requests were refused."""

import logging
from typing import Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.logs import RateLimitedLogger
from parley._node.protocol.codes import RESULT_SENTENCES, code_name

logger: Final = logging.getLogger("parley.access")

# Characters of a name that are logged: peers choose them, and as long as a payload may be.
LONGEST_NAME: Final = 200


class Party(Protocol):
    """The other side of a connection: what it proved, and where it came from or was dialled."""

    name: str

    @property
    def node_id(self) -> NodeId | None:
        """None if it proved none."""


def party(peer: Party) -> dict[str, object]:
    """Who the other side is, as each line of the access log has it."""
    return {"peer": peer.node_id, "address": peer.name}


def logs_answers() -> bool:
    """Whether `log_answered` logs anything: it was asked for."""
    return logger.isEnabledFor(logging.DEBUG)


def log_answered(peer: Party, kind: str, name: str, code: int, seconds: float) -> None:
    """Log that a handler answered a request, as `log_refused`. Only on request: on level debug."""
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
    """Log that a request was refused: of this `kind` (call, topic, event, stream, bus), for
    `name`, with a code of Result or of Reset. `now` is as `RateLimitedLogger.log` has it."""
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
