"""Short codes, by which two nodes that have never met get to know each other."""

from node.apps.codes.calls import claim_slot, find_slot, free_slot, keep_slot, offer_code_calls
from node.apps.codes.code import Code, draw_slot
from node.apps.codes.errors import CodeGoneError, CodeTextError, WrongCodeError
from node.apps.codes.exchange import CodeGiver, take_code
from node.apps.codes.slots import SlotTable

__all__ = [
    "Code",
    "CodeGiver",
    "CodeGoneError",
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
