"""Dial and Login (sections 19 and 20): how a node processes them.

Written from the document. A node is the state it has at that moment; the module keeps no state.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from tests.reference import cbor
from tests.reference.envelopes import Dropped, check_exports, is_id
from tests.reference.ways import Avoided, Links, choose
from tests.reference.wire import CELLS, own_cells

HOP_MS: Final = 100
LONGEST_MS: Final = 60_000
LONGEST_TEXT: Final = 256
TRACE_SIZE: Final = 16
MALFORMED, NOT_FOUND, DEADLINE, REFUSED, UNREACHABLE = 23, 1, 17, 20, 28


class DialRefused(Exception):
    """The code of the Answer, and the hop that it is about, if there is one."""

    def __init__(self, code: int, hop: int | None) -> None:
        super().__init__(code, hop)
        self.code, self.hop = code, hop


@dataclass(frozen=True)
class Situation:
    """The state of a node. `linked` are nodes with an open link. Of `accounts` (nodes that may have
    one, None: all), those in `logged_in` are connected and not suspended. `homes` are the node's
    homes, and `ended` the IDs whose ends it has stored (section 22).
    """

    own: bytes
    members: frozenset[bytes] = frozenset()
    linked: frozenset[bytes] = frozenset()
    carry: frozenset[bytes] = frozenset()
    accounts: frozenset[bytes] | None = frozenset()
    logged_in: frozenset[bytes] = frozenset()
    homes: frozenset[bytes] = frozenset()
    ended: frozenset[bytes] = frozenset()
    links: Links = field(default_factory=dict)

    def may_have_account(self, node: bytes) -> bool:
        """Return the accounts; a server doesn't have any."""
        known = self.accounts is None or node in self.accounts
        return known and node not in self.ended and not self.is_server(node)

    def is_server(self, node: bytes) -> bool:
        """Return whether the node identifies as this one."""
        return node in self.members or node in self.linked


@dataclass(frozen=True)
class GoesOn:
    """Return the next node and the message for it."""

    to: bytes
    path: list[bytes]
    trace: bytes
    deadline_ms: int

    @property
    def payload(self) -> bytes:
        """Of the next Dial."""
        return dial_payload(self.path, self.trace, self.deadline_ms)


def dial_payload(path: list[bytes], trace: bytes, deadline_ms: int) -> bytes:
    """A Dial by a path."""
    return cbor.encode_payload(
        {CELLS["path"]: path, CELLS["trace"]: trace, CELLS["deadline_ms"]: deadline_ms}
    )


def take_dial(node: Situation, neighbour: bytes, payload: bytes, passed_ms: int) -> GoesOn | None:
    """None: the inner connection is for this node. Raises DialRefused."""
    if neighbour not in node.linked | node.homes and not node.may_have_account(neighbour):
        raise DialRefused(REFUSED, None)
    cells = _read(payload)
    trace, deadline = cells[CELLS["trace"]], min(cells[CELLS["deadline_ms"]], LONGEST_MS)
    if CELLS["to"] in cells:
        path = _path_for_account(node, neighbour, cells[CELLS["to"]])
        at = 0
        if path == [node.own]:
            return None
    else:
        path = cells[CELLS["path"]]
        at = _place(node, neighbour, path)
        if at == len(path) - 1:
            return None
        _check_next(node, neighbour, path, at)
    left = deadline - passed_ms - HOP_MS
    if left <= 0:
        raise DialRefused(DEADLINE, at)
    return GoesOn(path[at + 1], path, trace, left)


def pass_answer(path: list[bytes], at: int, payload: bytes) -> bytes:
    """The Answer that the server at index `at` of a path sends for one with a code other than 0
    that came from the next server."""
    cells = own_cells(payload, "code", "text", "hop")
    code, hop = cells[CELLS["code"]], cells.get(CELLS["hop"])
    # The last node of a path has no successor.
    last = len(path) - (2 if code == UNREACHABLE else 1)
    if hop is None or not at < hop <= last:
        hop = min(at + 1, last)
    passed = {CELLS["code"]: code, CELLS["hop"]: hop}
    if text := cells.get(CELLS["text"], "")[:LONGEST_TEXT]:
        passed[CELLS["text"]] = text
    return cbor.encode_payload(passed)


def _read(payload: bytes) -> dict[int, Any]:
    try:
        cells = own_cells(payload, "path", "to", "trace", "deadline_ms")
    except cbor.LbmError as error:
        raise DialRefused(MALFORMED, None) from error
    by_path = CELLS["path"] in cells
    ids = cells.get(CELLS["path"] if by_path else CELLS["to"], [])
    least, most = (2, 8) if by_path else (1, 2)
    fits = (
        by_path != (CELLS["to"] in cells)
        and CELLS["deadline_ms"] in cells
        and len(cells.get(CELLS["trace"], b"")) == TRACE_SIZE
        and least <= len(ids) <= most
        and all(is_id(one) for one in ids)
        and len(set(ids)) == len(ids)
    )
    if not fits:
        raise DialRefused(MALFORMED, None)
    return cells


def _place(node: Situation, neighbour: bytes, path: list[bytes]) -> int:
    """The node's index in a path that it may act upon."""
    if node.own not in (path[-1:] if neighbour in node.homes else path[1:]):
        raise DialRefused(MALFORMED, None)
    at = path.index(node.own)
    if path[at - 1] != neighbour or neighbour not in node.linked | node.homes:
        raise DialRefused(REFUSED, at)
    return at


def _check_next(node: Situation, neighbour: bytes, path: list[bytes], at: int) -> None:
    following = path[at + 1]
    if at and neighbour not in node.linked:
        raise DialRefused(REFUSED, at)
    if path[-1] in node.ended:
        raise DialRefused(NOT_FOUND, at)
    last = at + 2 == len(path)
    if last and following in node.logged_in:
        return
    if last and not node.is_server(following):
        raise _away(node, following, at)
    if at and neighbour not in node.carry:
        raise DialRefused(REFUSED, at)
    if following not in node.linked:
        raise DialRefused(UNREACHABLE, at)


def _away(node: Situation, account: bytes, at: int) -> DialRefused:
    return DialRefused(UNREACHABLE if node.may_have_account(account) else NOT_FOUND, at)


def _path_for_account(node: Situation, neighbour: bytes, to: list[bytes]) -> list[bytes]:
    if not node.may_have_account(neighbour):
        raise DialRefused(REFUSED, None)
    if to[0] == node.own:
        if len(to) == 2:
            _check_next(node, neighbour, to, 0)
        return to
    if to[-1] in node.ended:
        raise DialRefused(NOT_FOUND, 0)
    links = {**node.links, node.own: dict.fromkeys(node.linked, False)}
    path = choose(links, node.own, to[0], Avoided(), 9 - len(to))
    if path is None:
        raise DialRefused(UNREACHABLE, 0)
    return [*path, *to[1:]]


def answer_login(
    node: Situation, asker: bytes, payload: bytes, *, encrypted: bool, tunnelled: bool
) -> int:
    """The code of the Answer to a Login."""
    try:
        cells = own_cells(payload, "exports", "envelopes") if payload else {}
        check_exports(cells.get(CELLS["exports"], []))
    except (cbor.LbmError, Dropped):
        return MALFORMED
    envelopes = cells.get(CELLS["envelopes"], [])
    if len(envelopes) > 1_024 or not all(isinstance(one, bytes) for one in envelopes):
        return MALFORMED
    may = encrypted and not tunnelled and node.may_have_account(asker)
    return 0 if may else REFUSED
