"""Tests of node/apps/codes/slots.py: who has which slot, and every limit."""

import pytest

from parley._crypto.identity import NodeId
from parley._node.apps.codes.code import LAST_SLOT, SECONDS
from parley._node.apps.codes.slots import (
    ASKED,
    MOST_SLOTS,
    OF_A_NODE,
    SlotTable,
)
from parley._node.apps.codes.slots import OF_AN_ADDRESS as SLOTS_OF_AN_ADDRESS
from parley._node.errors import CallRefused
from parley._node.protocol.codes import ResultCode

ALICE, BOB = NodeId(bytes([1]) * 32), NodeId(bytes([2]) * 32)


def address(number: int) -> str:
    return f"198.51.{number >> 8}.{number & 255}"


def node(number: int) -> NodeId:
    return NodeId(number.to_bytes(32))


class Table(SlotTable[str]):
    """Sessions are names; those in `gone` are over. Each call comes from an address of its own."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.calls = 0
        super().__init__(lambda session: session in self.gone)

    def claimed(
        self, who: NodeId, session: str = "", now: float = 0.0, wanted: int | None = None
    ) -> int:
        self.calls += 1
        return self.claim(who, session, address(self.calls), now, wanted)

    def found(self, slot: int, now: float = 0.0) -> NodeId | None:
        self.calls += 1
        return self.find(slot, address(self.calls), now)


def refused(code: ResultCode) -> "pytest.RaisesExc[CallRefused]":
    return pytest.RaisesExc(CallRefused, check=lambda error: error.code == code)


def test_the_lowest_that_is_free() -> None:
    table = Table()
    assert [table.claimed(node_id) for node_id in (ALICE, BOB, ALICE)] == [1, 2, 3]
    assert [table.found(slot) for slot in (1, 2, 3, 4)] == [ALICE, BOB, ALICE, None]
    table.free(BOB, 1)  # another's
    table.free(ALICE, 1)
    table.free(ALICE, 1)
    assert table.found(1) is None
    assert table.claimed(BOB) == 1


def test_a_slot_is_kept_for_so_long() -> None:
    table = Table()
    slot = table.claimed(ALICE)
    assert table.found(slot, SECONDS - 0.1) == ALICE
    assert table.claimed(ALICE, now=SECONDS - 0.1, wanted=slot) == slot
    assert table.found(slot, 2 * SECONDS - 0.2) == ALICE
    assert table.found(slot, 2 * SECONDS - 0.1) is None
    assert len(table) == 0


def test_a_slot_is_free_when_its_session_ends() -> None:
    table = Table()
    slot = table.claimed(ALICE, "first")
    with refused(ResultCode.NOT_AUTHORISED):
        table.claimed(BOB, wanted=slot)
    assert table.claimed(ALICE, "second", wanted=slot) == slot
    table.gone.add("first")
    assert table.found(slot) == ALICE
    table.gone.add("second")
    assert table.found(slot) is None
    assert table.claimed(BOB, wanted=slot) == slot


def test_slots_of_one_node() -> None:
    table = Table()
    slot = [table.claimed(ALICE) for _ in range(OF_A_NODE)][-1]
    with refused(ResultCode.OVERLOADED):
        table.claimed(ALICE)
    assert table.claimed(ALICE, wanted=slot) == slot  # it has that one
    assert table.claimed(BOB) == slot + 1


def test_slots_of_one_address() -> None:
    table = Table()
    for number in range(SLOTS_OF_AN_ADDRESS):
        table.claim(node(number), "", "192.0.2.1", number * ASKED.seconds)
    late = SLOTS_OF_AN_ADDRESS * ASKED.seconds
    with refused(ResultCode.OVERLOADED):
        table.claim(node(99), "", "192.0.2.1", late)
    assert table.claim(node(99), "", "192.0.2.2", late)


def test_slots_of_all() -> None:
    table = Table()
    for number in range(MOST_SLOTS):
        assert table.claimed(node(number)) == number + 1
    with refused(ResultCode.OVERLOADED):
        table.claimed(node(MOST_SLOTS))
    assert len(table) == MOST_SLOTS < LAST_SLOT


def test_how_often_an_address_asks() -> None:
    table = Table()
    for _ in range(int(ASKED.burst)):
        table.find(1, "192.0.2.1", 0.0)
    with refused(ResultCode.OVERLOADED):
        table.find(1, "192.0.2.1", 0.0)
    with refused(ResultCode.OVERLOADED):
        table.claim(ALICE, "", "192.0.2.1", 0.0)
    table.find(1, "192.0.2.2", 0.0)
    table.find(1, "192.0.2.1", ASKED.seconds)
