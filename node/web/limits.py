"""What whoever connects to the HTTP server may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """What whoever connects may take.

    Attributes:
        connections: how many at once. Beyond it, a new one takes the slot of the connection that
            has waited longest for its client, of the address (IPv6: its /64) with the most
            connections; it is closed if all of those are being answered.
        head: bytes of a request's line and headers; more is answered with 431.
        body: bytes of a request's body; more is answered with 413.
        idle: seconds for a request to come whole, from the connection or the last answer on.
        write: seconds for what was written to be taken by the other side.
    """

    connections: int = 64
    head: int = 16 * 1024
    body: int = 64 * 1024
    idle: float = 30.0
    write: float = 10.0
