"""Target `connection`: valid encryption around arbitrary content.

Every event of the script is correctly encrypted, chained and sealed, so only its content can be
wrong. The input is a byte for the setting and a script (`script.py`, `conversation.py`).
"""

from typing import Final

from parley._lbm.padding import parse_padding
from parley._node.protocol.limits import Limits
from tests.fuzz.conversation import converse
from tests.fuzz.meeting import Setting
from tests.fuzz.script import parse
from tests.reference.sealing import Suite

MAX_SIZE: Final = 4096

USUAL: Final = Suite(kex="x25519")
OTHER: Final = Suite("x25519", hash="blake2b-256", cipher="chacha20-poly1305", sealing="each")
# Small ones, so that a short script reaches them.
SMALL: Final = Limits(
    max_payload=1024, seal_events=4, seal_delay_ms=0, stream_window=1024, max_streams=4
)
SETTINGS: Final = (
    Setting("responder", USUAL),
    Setting("initiator", USUAL),
    Setting("responder", USUAL, {"deliver": "sealed", "peer_memory": 2048}, SMALL),
    Setting("initiator", OTHER, {"padding": parse_padding("padme")}, SMALL),
    Setting(
        "initiator",
        USUAL,
        {"update_after_events": 4, "rekey_interval": 5.0, "rekey_allowance": 8},
        Limits(max_streams=4),
    ),
    Setting(
        "responder",
        OTHER,
        {"update_after_bytes": 512, "update_after_seconds": 5.0, "rekey_allowance": 2},
    ),
)


def fuzz(data: bytes) -> None:
    """Hold the conversation."""
    setting = SETTINGS[data[0] % len(SETTINGS)] if data else SETTINGS[0]
    converse(setting, parse(data[1:]))
