"""`WebLimits`: the limits of the HTTP server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """What all clients together, and each connection, can use.

    Attributes:
        connections: the number of connections. At the limit, a new connection takes the slot of the
            connection that has waited longest for its client, of the address (IPv6: its /64) with
            the most connections; it is closed if all connections are being answered.
        head: bytes of a request's line and headers; a longer head is answered with 431.
        body: bytes of a request's body; a longer body is answered with 413.
        idle: seconds for a whole request with its body, from the connection or the last response.
        write: seconds for the client to read what was written.
    """

    connections: int = 64
    head: int = 16 * 1024
    body: int = 64 * 1024
    idle: float = 30.0
    write: float = 10.0
