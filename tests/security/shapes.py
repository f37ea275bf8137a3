"""The structurally different handshakes: which events they have, and which content.

An event has the same position and length in every run of a shape, so that a test can refer to a
byte by its number. Identities are fixed and created once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from parley._crypto.identity import Identity
from parley._crypto.registry import SIGNING
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.frames import frame
from tests.node.protocol.pair import Pair, events_of
from tests.reference.recorded import seed

NETWORK_KEY: Final = seed("network key")
SMALL: Final = 256
BOTH_KEX: Final = ("x25519", "x25519-mlkem768")
ONE_OF_EACH: Final[Mapping[str, tuple[str, ...]]] = {
    "kex": ("x25519",),
    "signing": ("ed25519",),
    "hash": ("sha256",),
    "cipher": ("aes-256-gcm",),
    "sealing": ("chain",),
}

HELLO: Final = "Hello"
RETRY: Final = "Retry"
SECOND_HELLO: Final = "second Hello"
REPLY: Final = "Reply"
RESPONDERS_PROOF: Final = "responder's Proof"
INITIATORS_PROOF: Final = "initiator's Proof"
STRAIGHT: Final = (HELLO, REPLY, RESPONDERS_PROOF, INITIATORS_PROOF)
WITH_RETRY: Final = (HELLO, RETRY, SECOND_HELLO, *STRAIGHT[1:])
FROM_INITIATOR: Final = frozenset({HELLO, SECOND_HELLO, INITIATORS_PROOF})


@cache
def identity(name: str, *algorithms: str) -> Identity:
    """Return the fixed identity of a name, with the primary key first."""
    names = algorithms or ("ed25519",)
    return Identity.from_keys([SIGNING[each].load(seed(f"{name} {each}")) for each in names])


@dataclass(frozen=True, eq=False)
class Shape:
    """One kind of handshake.

    In events longer than `SMALL` bytes, a usual run tries every `step`th position: 1 means every
    byte. The algorithms are `ONE_OF_EACH`, except those given.
    """

    name: str
    step: int = 1
    events: tuple[str, ...] = STRAIGHT
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    responders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def config(self, who: str, **settings: Any) -> CoreConfig:
        """Return the settings of 'initiator' or 'responder'."""
        if not settings:
            return _config(self, who)  # sweeps call it for each of their positions
        return self.made(who, settings)

    def made(self, who: str, settings: Mapping[str, Any]) -> CoreConfig:
        names = {**ONE_OF_EACH, **self.algorithms}
        if who == "responder":
            names |= self.responders
        settings = {**self.settings, **settings}
        settings.setdefault("identity", identity(who, *names["signing"]))
        return CoreConfig(algorithms=names, **settings)

    def frames(self) -> dict[str, bytes]:
        """The frames of one handshake, in the order of the events."""
        return _frames(self.name)

    def sizes(self) -> dict[str, int]:
        """The length of each event's frame, in the order of the events."""
        return {name: len(framed) for name, framed in self.frames().items()}


@cache
def _config(shape: Shape, who: str) -> CoreConfig:
    return shape.made(who, {})


SHAPES: Final = {
    shape.name: shape
    for shape in (
        Shape("chain"),
        Shape("each", algorithms={"sealing": ("each",)}),
        Shape("network", settings={"network_key": NETWORK_KEY}),
        # The first Hello has the large share and the second one the small share, or the reverse.
        Shape(
            "retry",
            step=13,
            events=WITH_RETRY,
            algorithms={"kex": BOTH_KEX[::-1]},
            responders={"kex": ("x25519",)},
        ),
        Shape(
            "retry in a network",
            step=53,
            events=WITH_RETRY,
            algorithms={"kex": BOTH_KEX},
            responders={"kex": ("x25519-mlkem768",)},
            settings={"network_key": NETWORK_KEY},
        ),
        Shape("p256", algorithms={"signing": ("ecdsa-p256",), "sealing": ("each",)}),
        Shape(
            "all choices",
            step=53,
            algorithms={
                "kex": BOTH_KEX[::-1],
                "hash": ("sha512", "sha256"),
                "cipher": ("xchacha20-poly1305", "aes-256-gcm"),
                "sealing": ("each", "chain"),
            },
        ),
        Shape(
            "post-quantum",
            step=997,
            algorithms={
                "kex": ("x25519-mlkem768",),
                "signing": ("ml-dsa-65", "ed25519", "ecdsa-p256"),
                "hash": ("blake2b-256",),
                "cipher": ("chacha20-poly1305",),
            },
        ),
    )
}


@cache
def _frames(name: str) -> dict[str, bytes]:
    shape = SHAPES[name]
    pair = Pair(shape.config("initiator"), shape.config("responder"))
    pair.pump()
    assert pair.a.opened
    assert pair.b.opened
    return named_frames(shape, pair)


def named_frames(shape: Shape, pair: Pair) -> dict[str, bytes]:
    """Return the frames of a handshake that a pair exchanged without any other event, by name."""
    sent = {True: iter(events_of(pair.a.wire)), False: iter(events_of(pair.b.wire))}
    frames = {event: frame(next(sent[event in FROM_INITIATOR])) for event in shape.events}
    assert not any(list(rest) for rest in sent.values())
    return frames
