"""Sessions for row 2: two cores that exercise everything, under keys that a test can leak.

The private keys of their identities are known; everything else in a session is freshly random.
"""

from typing import Any

from parley._crypto.identity import Identity
from parley._crypto.registry import NAMES, SIGNING
from parley._node.protocol.observer import Observer
from tests.node.protocol.pair import Pair, events_of, make_config
from tests.reference.handshake import handshake_cells
from tests.reference.recorded import seed
from tests.reference.wire import CELLS

NETWORK_KEY = seed(
    "network key of row 2"
)  # different from the vectors' keys, because other tests load those
HYBRID = "x25519-mlkem768"
OWNERS = ("ours", "theirs")


def identity(owner: str, *names: str) -> Identity:
    """Return an identity whose private keys are in `LEAKED`."""
    return Identity.from_keys([SIGNING[name].load(seed(f"{owner} {name}")) for name in names])


def busy(pair: Pair) -> None:
    """Send events on several streams in several epochs: plain updates, and two rekeys by `b`."""
    for number in range(6):
        for side in pair.sides:
            stream = side.core.open_stream(f"stream {number}")
            side.core.send_data(stream, b"secret %d" % number)
            side.core.send(1, 0, 64, 1, b"secret %d" % number, lbm=False, seal=number % 2 == 0)
        pair.pump()
        match number:
            case 1:
                pair.a.core.update_keys(pair.now)
                pair.b.core.update_keys(pair.now)
            case 2 | 4:
                pair.b.core.rekey(pair.now)
            case 3:
                pair.b.core.update_keys(pair.now)
        pair.pump()


def make_pair(tape: Observer | None = None, **settings: Any) -> Pair:
    """Return two cores whose identities have a key of every algorithm."""
    settings.setdefault("rekey_allowance", 100)
    a, b = (make_config(identity(owner, *NAMES["signing"]), **settings) for owner in OWNERS)
    return Pair(a, b, observers=(tape, None))


def shares(wire: bytes | bytearray) -> dict[str, bytes]:
    """Return the key shares in a side's Hello or Reply."""
    shares: dict[str, bytes] = handshake_cells(events_of(wire)[0])[1][CELLS["shares"]]
    return shares
