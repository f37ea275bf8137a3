"""The cost of one event, and of a handshake, through the core alone: two connections in memory,
no I/O.

Nothing but the core runs; it says what the shell adds. Of a handshake it says, too, how much of it
the libraries take, that no code of ours could be faster than.
"""

from time import perf_counter, process_time

from crypto.registry import KEX, SIGNING
from node.protocol.config import CoreConfig
from node.protocol.connection import Connection
from node.protocol.reports import EventReceived, PeerIdentified
from parley import Identity
from parley.protocol import Encodable, decode, encode

BATCH = 64
PAYLOAD: dict[int, Encodable] = {21: "bench.echo", 22: bytes(range(128)), 23: 5000}


def event_cost(seconds: float) -> dict[str, float]:
    """Microseconds for one event of 128 bytes: encode to frame, and frame to value."""
    sender, receiver = _connected(_configs())
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


def handshake_cost(seconds: float) -> dict[str, float]:
    """Microseconds of processor time for a handshake, both sides, between identities that have met:
    all of it, its key exchange, and its two signatures, made and verified."""
    configs = _configs()
    kex, key = next(iter(KEX.values())), SIGNING["ed25519"].generate()
    verifier, covered = SIGNING["ed25519"].verifier(key.public), bytes(44)

    def exchange() -> None:
        ephemeral = kex.generate()
        share, _ = kex.respond(ephemeral.share)
        ephemeral.derive(share)

    def signatures() -> None:
        for _ in configs:
            verifier.verify(key.sign(covered), covered)

    parts = {
        "handshake_us": lambda: _connected(configs),
        "exchange_us": exchange,
        "signatures_us": signatures,
    }
    taken = dict.fromkeys(parts, 0.0)
    count = 0
    while sum(taken.values()) < seconds:
        for name, part in parts.items():
            start = process_time()
            part()
            taken[name] += process_time() - start
        count += 1
    return {name: total / count * 1e6 for name, total in taken.items()}


def _configs() -> tuple[CoreConfig, CoreConfig]:
    return CoreConfig(identity=Identity.create()), CoreConfig(identity=Identity.create())


def _connected(configs: tuple[CoreConfig, CoreConfig]) -> tuple[Connection, Connection]:
    initiator = Connection(configs[0], initiator=True, now=0.0)
    responder = Connection(configs[1], initiator=False, now=0.0)
    for _ in range(2):
        responder.receive_data(initiator.data_to_send(0.0), 0.0)
        initiator.receive_data(responder.data_to_send(0.0), 0.0)
        for side in (initiator, responder):
            if any(isinstance(report, PeerIdentified) for report in side.reports()):
                side.accept_peer(0.0)
    return initiator, responder
