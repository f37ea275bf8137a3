"""The members of a relay, and senders that wait for one of them."""

import pytest

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.codec import BROADCAST, SERVER
from parley._node.dialects.relay.connection import RelayConnection
from parley._node.dialects.relay.router import Router
from parley._node.protocol.codes import CloseCode
from tests.node.dialects.relay.hall import LIMITS, A, B, C, Hall, end_of, message, messages
from tests.node.dialects.relay.test_connection_sorter import Listener


def test_a_uuid_has_one_member_at_a_time() -> None:
    router = Router()
    one, two = Listener(), Listener()
    router.join(A, one)
    with pytest.raises(ValueError, match="already"):
        router.join(A, two)
    router.leave(A, two)  # a member that hasn't joined doesn't remove another
    assert router.members[A] is one
    router.leave(A, one)
    router.leave(A, one)
    router.join(A, two)
    assert router.members[A] is two


@pytest.mark.parametrize("uuid", [BROADCAST, SERVER, A[:15]])
def test_reserved_uuids_are_rejected(uuid: bytes) -> None:
    with pytest.raises(ValueError, match="is reserved"):
        Router().join(uuid, Listener())


HALF = LIMITS.write_buffer // 2
LARGE = bytes(4_000)
SLOW = LIMITS.patience


def crowd(hall: Hall, sender: bytes, target: bytes) -> None:
    """Let `sender` send so much that it must wait for `target`."""
    for _ in range(HALF // len(LARGE) + 1):
        hall.send(sender, message(target, sender, LARGE))
    assert not hall.at[sender].wants_data


def take(hall: Hall, uuid: bytes, left: int) -> None:
    """Let a transport write all queued data except `left` bytes, or a little more."""
    core = hall.at[uuid]
    while core.queued_bytes > left:
        core.outbox.take(1)
    core._moved(hall.now)


def test_a_sender_resumes_below_a_quarter() -> None:
    hall = Hall(A, B, C)
    for _ in range(8):
        hall.send(A, message(B, A, LARGE))
        assert hall.at[A].wants_data
    hall.send(A, message(B, A, LARGE))  # 36,324 bytes
    assert not hall.at[A].wants_data
    assert hall.at[B].wants_data
    assert hall.at[C].wants_data
    take(hall, B, HALF // 2 + 4_036)
    assert not hall.at[A].wants_data
    take(hall, B, HALF // 2)
    assert hall.at[A].wants_data
    assert hall.router.crowded == {}


def test_senders_wait_longer_for_a_client_that_makes_progress() -> None:
    hall = Hall(A, B)
    crowd(hall, A, B)
    for _ in range(4):
        hall.now += SLOW * 0.9
        hall.at[A].handle_deadline(hall.now)
        assert not hall.at[A].wants_data
        take(hall, B, hall.at[B].queued_bytes - 1)
        assert hall.at[A].next_deadline() == pytest.approx(hall.now + SLOW)
    assert not hall.at[A].wants_data
    assert hall.router.dropped == 0


def test_senders_wait_once_for_a_client_that_does_not_read() -> None:
    hall = Hall(A, B, C)
    hall.now += 5
    crowd(hall, A, B)
    assert hall.at[A].next_deadline() == pytest.approx(hall.now + SLOW)
    hall.at[A].handle_deadline(hall.now + SLOW * 0.9)
    assert not hall.at[A].wants_data
    hall.now += SLOW
    hall.at[A].handle_deadline(hall.now)
    assert hall.at[A].wants_data
    while not hall.at[B].closing:
        for sender in (A, C):
            hall.send(sender, message(B, sender, LARGE))
            assert hall.at[sender].wants_data
    assert end_of(hall.at[B]) == (CloseCode.OVERLOADED, False)
    assert hall.router.dropped == 1


def test_senders_wait_again_for_a_client_that_caught_up() -> None:
    hall = Hall(A, B)
    crowd(hall, A, B)
    hall.now += SLOW
    hall.at[A].handle_deadline(hall.now)
    take(hall, B, HALF // 2 + 4_036)
    hall.send(A, message(B, A, LARGE) * 5)
    assert hall.at[A].wants_data  # not yet
    take(hall, B, HALF // 2)
    crowd(hall, A, B)


def test_all_senders_wait_for_a_slow_client() -> None:
    hall = Hall(A, B, C)
    hall.send(C, message(B, C, b"in parts")[:40])
    crowd(hall, A, B)
    waiting = hall.at[B].queued_bytes
    hall.send(C, message(B, C, b"in parts")[40:] + message(A, C, b"behind it"))
    assert hall.at[B].queued_bytes == waiting
    assert hall.read(A) == []
    assert not hall.at[C].wants_data
    hall.written(B)
    assert hall.at[A].wants_data
    assert not hall.at[C].wants_data  # postponed data comes first
    assert hall.at[C].next_deadline() <= hall.now
    hall.at[C].handle_deadline(hall.now)
    assert hall.read(B) == [(B, C, b"in parts")]
    assert hall.read(A) == [(A, C, b"behind it")]
    assert hall.at[C].wants_data


def test_many_simultaneous_senders_do_not_cause_a_drop() -> None:
    senders = [bytes([n]) * 16 for n in range(10, 60)]
    hall = Hall(B, *senders)
    for sender in senders:
        hall.send(sender, message(B, sender, LARGE))
        assert hall.at[B].queued_bytes <= HALF + 4_036
    got = hall.read(B)
    while late := [core for core in hall.at.values() if not core.wants_data]:
        for core in late:
            core.handle_deadline(hall.now)
        got += hall.read(B)
    assert [sender for _, sender, _ in got] == senders
    assert hall.router.dropped == 0


def test_a_broadcast_waits_for_slow_clients() -> None:
    hall = Hall(A, B, C)
    crowd(hall, A, B)
    hall.send(C, message(BROADCAST, C, b"to all"))
    assert hall.read(A) == []
    hall.written(B)
    hall.at[C].handle_deadline(hall.now)
    assert hall.read(A) == hall.read(B) == [(BROADCAST, C, b"to all")]


def test_a_waiting_sender_still_gets_its_messages() -> None:
    hall = Hall(A, B, C)
    crowd(hall, A, B)
    hall.send(C, message(A, C, b"for you"))
    assert hall.read(A) == [(A, C, b"for you")]
    assert not hall.at[A].wants_data


@pytest.mark.parametrize("how", ["eof", "close", "drop"])
def test_senders_do_not_wait_for_a_disconnected_client(how: str) -> None:
    hall = Hall(A, B)
    crowd(hall, A, B)
    if how == "eof":
        hall.at[B].receive_eof(hall.now)
    elif how == "close":
        hall.at[B].close(hall.now)
    else:
        hall.router.broadcast(C, [bytes(HALF)], HALF, hall.now)
        assert hall.router.dropped == 1
        hall.written(A)
    assert hall.at[A].wants_data
    assert hall.router.crowded == {}


def test_a_sender_can_leave_while_it_waits() -> None:
    hall = Hall(A, B)
    crowd(hall, A, B)
    hall.at[A].receive_eof(hall.now)
    assert hall.at[A].wants_data
    assert len(messages(hall.written(B))) == 9


def test_two_clients_that_flood_each_other_wait_once() -> None:
    hall = Hall(A, B)
    crowd(hall, A, B)
    crowd(hall, B, A)
    hall.now += SLOW
    for uuid in (A, B):
        hall.at[uuid].handle_deadline(hall.now)
        assert hall.at[uuid].wants_data
    hall.send(A, message(B, A, LARGE) * 8)
    assert end_of(hall.at[B]) == (CloseCode.OVERLOADED, False)


def test_time_that_it_waited_is_no_silence_of_its_own() -> None:
    limits = DialectLimits(longest_frame=4_096, write_buffer=65_536, idle_timeout=1.0, patience=5.0)
    hall = Hall(A, B, limits=limits)
    crowd(hall, A, B)
    hall.now += 4
    hall.at[A].handle_deadline(hall.now)
    assert not hall.at[A].closing
    hall.written(B)
    hall.at[A].handle_deadline(hall.now)
    assert hall.at[A].next_deadline() == hall.now + 1
    hall.at[A].handle_deadline(hall.now + 1)
    assert end_of(hall.at[A]) == (CloseCode.TIMEOUT, False)


def test_one_message_may_be_longer_than_all_that_may_wait() -> None:
    hall = Hall(A, B, limits=DialectLimits(longest_frame=100_000, write_buffer=1_024))
    for _ in range(3):
        hall.send(A, message(B, A, bytes(90_000)))
        assert not hall.at[A].wants_data
        assert hall.read(B) == [(B, A, bytes(90_000))]
        assert hall.at[A].wants_data


def test_members_without_a_queue_never_wait() -> None:
    hall, listener = Hall(A, B), Listener()
    hall.router.join(C, listener)
    hall.send(A, message(C, A, LARGE) * 40)
    assert hall.at[A].wants_data
    assert len(listener.got) == 1
    core: RelayConnection = hall.at[B]
    for _ in range(8):
        hall.router.broadcast(C, [bytes(HALF // 4)], HALF // 4, hall.now)
    assert core.queued_bytes == 2 * HALF
