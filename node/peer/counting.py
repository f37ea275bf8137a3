"""What is counted of one connection, apart from what its parts count themselves."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from parley._node.handlers.registry import Entry
from parley._node.messaging.incoming_requests import IncomingCall
from parley._node.protocol.codes import CloseCode, code_name
from parley._node.protocol.reports import ConnectionEnded
from parley._node.remote.live_connection import LiveConnection

CODES: Final = frozenset(CloseCode)


def count_final(
    refused: Counter[int], now: Callable[[], float], call: IncomingCall | None, code: int
) -> None:
    """A request is over: of a call or event with its handler, or it was `refused` before that."""
    if call is None:
        refused[code] += 1
    elif type(call.entry) is Entry:  # else a subscription, of which its topic tells
        call.entry.tally.add(code, now() - call.came)


def direction(live: LiveConnection) -> str:
    """Who dialled a connection: `dialled` from here, or `accepted`."""
    return "dialled" if live.core.initiator else "accepted"


def count_handshake(live: LiveConnection, result: str) -> None:
    """A handshake is over."""
    metrics = live.metrics
    metrics.handshakes[direction(live), result] += 1
    if result == "ok":
        metrics.handshake_seconds.observe(live.backend.now() - live.made_at)


def count_ending(live: LiveConnection, ended: ConnectionEnded) -> None:
    """A connection is over; one whose handshake was not is a handshake that failed."""
    known = ended.code in CODES
    code = code_name(ended.code) if known else "other"  # no peer makes labels
    if live.agreed is not None:
        live.metrics.ended[code] += 1
    elif live.driver.was_connected:
        count_handshake(live, code)
    else:
        count_handshake(live, "unreachable")
