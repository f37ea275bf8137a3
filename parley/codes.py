"""Short codes, which let two nodes exchange and verify their node IDs for the first time."""

from parley._node.apps.pairing.code import (
    Code,
    CodeGoneError,
    CodeTextError,
    WrongCodeError,
    draw_slot,
)
from parley._node.apps.pairing.exchange import CodeListener, take_code
from parley._node.apps.pairing.slots import (
    SlotTable,
    claim_slot,
    find_slot,
    free_slot,
    keep_slot,
    offer_code_calls,
)

__all__ = [
    "Code",
    "CodeGoneError",
    "CodeListener",
    "CodeTextError",
    "SlotTable",
    "WrongCodeError",
    "claim_slot",
    "draw_slot",
    "find_slot",
    "free_slot",
    "keep_slot",
    "offer_code_calls",
    "take_code",
]
