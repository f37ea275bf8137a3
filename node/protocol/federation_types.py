"""The events of accounts, tunnels and federation: what each of their types carries
(docs/protocol.md sections 19 and 20).
"""

from collections.abc import Mapping
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol import codes
from parley._node.protocol.cells import TEXT, Cells, Kind, exactly, uint
from parley._node.protocol.codes import LAST_CODE

NODE_ID_SIZE: Final = 32
TRACE_SIZE: Final = 16
# Ids of a path, its origin and its target among them.
SHORTEST_PATH: Final = 2
LONGEST_PATH: Final = 8
# Servers of a federation, and so entries of a Have.
MOST_SERVERS: Final = 1_024
# Bytes of envelopes in one Cards; of one of them, at least this many.
LARGEST_CARDS: Final = 64 * 1024
_LEAST_ENVELOPE: Final = 64
# Patterns that a node exports, and characters of each.
MOST_EXPORTS: Final = 64
LONGEST_EXPORT: Final = 256


def is_node_id(value: object) -> bool:
    """Whether a value is a node id, as it travels."""
    return type(value) is bytes and len(value) == NODE_ID_SIZE


def node_ids(least: int, most: int) -> Kind:
    """An array of so many node ids."""
    return Kind(
        f"an array of {least}..{most} node ids",
        list,
        lambda value: least <= len(value) <= most and all(map(is_node_id, value)),
    )


def _is_have(value: list[Any]) -> bool:
    return len(value) <= MOST_SERVERS and all(
        type(one) is list
        and len(one) == 2
        and is_node_id(one[0])
        and type(one[1]) is int
        and one[1] >= 0
        for one in value
    )


def _is_exports(value: list[Any]) -> bool:
    return len(value) <= MOST_EXPORTS and all(
        type(one) is str and len(one) <= LONGEST_EXPORT for one in value
    )


def _are_bytes(value: list[Any]) -> bool:
    return len(value) <= LARGEST_CARDS // _LEAST_ENVELOPE and all(
        type(one) is bytes for one in value
    )


def _check_dial(cells: Mapping[int, Any]) -> None:
    """Where to, or by which way: one of both."""
    if (keys.TO in cells) is (keys.PATH in cells):
        has = "both" if keys.TO in cells else "neither"
        raise LbmDecodeError(f"a Dial has a node to reach or a path; this one has {has}")


EXPORTS_KIND: Final = Kind("an array of patterns", list, _is_exports)
ENVELOPES_KIND: Final = Kind("an array of envelopes", list, _are_bytes)
_ANSWER: Final = {keys.CODE: uint(0, LAST_CODE)}

LOGIN: Final = Cells(
    {}, {keys.ENVELOPES: ENVELOPES_KIND, keys.EXPORTS: EXPORTS_KIND}, may_be_empty=True
)
LOGOUT: Final = Cells({}, may_be_empty=True)
ACCOUNT_ANSWER: Final = Cells(_ANSWER, {keys.TEXT: TEXT})

TUNNEL_ANSWER: Final = Cells(_ANSWER, {keys.TEXT: TEXT, keys.HOP: uint(0, LONGEST_PATH - 1)})
DIAL: Final = Cells(
    {keys.TRACE: exactly(TRACE_SIZE), keys.DEADLINE_MS: uint()},
    {keys.TO: node_ids(1, 2), keys.PATH: node_ids(SHORTEST_PATH, LONGEST_PATH)},
    check=_check_dial,
)

HAVE: Final = Cells({keys.HAVE: Kind("an array of [node id, number]", list, _is_have)})
CARDS: Final = Cells({keys.ENVELOPES: ENVELOPES_KIND})

ACCOUNT_CELLS: Final[Mapping[int, Cells]] = {
    codes.LOGIN: LOGIN,
    codes.LOGOUT: LOGOUT,
    codes.ACCOUNT_ANSWER: ACCOUNT_ANSWER,
}
TUNNEL_CELLS: Final[Mapping[int, Cells]] = {
    codes.TUNNEL_ANSWER: TUNNEL_ANSWER,
    codes.DIAL: DIAL,
}
FEDERATION_CELLS: Final[Mapping[int, Cells]] = {codes.HAVE: HAVE, codes.CARDS: CARDS}
