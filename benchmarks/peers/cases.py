"""The peers, the cases that they have, and what is aimed at beside them."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal

from benchmarks.cases import CASES, Case
from benchmarks.peers import nats_server
from benchmarks.task import SideName

OURS: Final = "ours"
STREAMS: Final = "baseline"


@dataclass(frozen=True, slots=True)
class Peer:
    """What is measured beside ours: its Python package, and which keys its sides have."""

    side: SideName
    title: str
    package: str = ""
    keys: Literal["", "certificates", "curve"] = "certificates"
    through_server: bool = False

    def missing(self) -> str:
        """Why it cannot be measured here; empty if it can."""
        if self.package and not _version(self.package):
            return f"{self.package} is not installed (`--group peers`)"
        if self.through_server and not nats_server.is_installed():
            return f"there is no {nats_server.PROGRAM} on this machine"
        return ""

    def versions(self) -> str:
        """What it is made of, with versions; empty if that is all Python's own."""
        if not self.package:
            return ""
        found = f"{self.package} {_version(self.package)}"
        if self.through_server:
            found += f", {nats_server.PROGRAM} {nats_server.version()}"
        return found


def _version(package: str) -> str:
    """Of an installed package; empty of another."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


PEERS: Final[dict[str, Peer]] = {
    peer.side: peer
    for peer in (
        Peer("baseline", "TLS streams", keys=""),
        Peer("zeromq", "ZeroMQ CURVE, blocking", "pyzmq", keys="curve"),
        Peer("zeromq-asyncio", "ZeroMQ CURVE, asyncio", "pyzmq", keys="curve"),
        Peer("zenoh", "Zenoh", "eclipse-zenoh"),
        Peer("nats", "NATS", "nats-py", through_server=True),
        Peer("grpc", "gRPC", "grpcio"),
        Peer("websockets", "WebSockets", "websockets"),
    )
}


PEER_CASES: Final[dict[str, Case]] = {
    name: CASES[name]
    for name in (
        "calls-64",
        "calls",
        "bulk-1m",
        "bulk-64k",
        "handshakes",
        "notes-1",
        "notes-100",
        "idle-memory",
    )
}


@dataclass(frozen=True, slots=True)
class Aim:
    """How many times the other side's figure ours should be; `compiled` is for the compiled core.
    Beside ourselves it is a figure that ours should not exceed."""

    case: str
    beside: str
    least: float
    compiled: float


AIMS: Final = (
    Aim("calls-64", STREAMS, 0.8, 1.0),
    Aim("calls", STREAMS, 0.5, 0.65),
    Aim("bulk-1m", STREAMS, 1.0, 1.0),
    Aim("bulk-64k", STREAMS, 1.2, 1.2),
    Aim("handshakes", STREAMS, 1.5, 2.0),
    Aim("notes-1", "zenoh", 1.5, 1.5),
    Aim("notes-100", "zenoh", 2.0, 2.0),
    Aim("idle-memory", OURS, 16 * 1024, 16 * 1024),
)
