"""The cost of one event through the core alone: two connections in memory, no I/O.

Nothing but the core runs; it says what the shell adds.
"""

from time import perf_counter

from node.protocol.config import CoreConfig
from node.protocol.connection import Connection
from node.protocol.reports import EventReceived, PeerIdentified
from parley import Identity
from parley.protocol import Encodable, decode, encode

BATCH = 64
PAYLOAD: dict[int, Encodable] = {21: "bench.echo", 22: bytes(range(128)), 23: 5000}


def event_cost(seconds: float) -> dict[str, float]:
    """Microseconds for one event of 128 bytes: encode to frame, and frame to value."""
    sender, receiver = _connected()
    sending = receiving = 0.0
    count = 0
    while sending + receiving < seconds:
        start = perf_counter()
        for _ in range(BATCH):
            sender.send(1, 0, 64, 1, encode(PAYLOAD))
        data = sender.data_to_send(0.0)
        middle = perf_counter()
        receiver.receive_data(data, 0.0)
        for report in receiver.reports():
            if isinstance(report, EventReceived):
                decode(report.payload)
                count += 1
        sending += middle - start
        receiving += perf_counter() - middle
    return {"send_us": sending / count * 1e6, "receive_us": receiving / count * 1e6}


def _connected() -> tuple[Connection, Connection]:
    sides = tuple(
        Connection(CoreConfig(identity=Identity.create()), initiator=initiator, now=0.0)
        for initiator in (True, False)
    )
    initiator, responder = sides
    for _ in range(4):
        responder.receive_data(initiator.data_to_send(0.0), 0.0)
        initiator.receive_data(responder.data_to_send(0.0), 0.0)
        for side in sides:
            if any(isinstance(report, PeerIdentified) for report in side.reports()):
                side.accept_peer(0.0)
    return initiator, responder
