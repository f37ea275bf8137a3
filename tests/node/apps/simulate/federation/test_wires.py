"""One direction of a session: in order, at its pace, and not after it is cut."""

from parley._node.apps.simulate.draws import Draws
from tests.node.apps.simulate.federation.agenda import Agenda
from tests.node.apps.simulate.federation.plan import SENT_AGAIN
from tests.node.apps.simulate.federation.weight import weigh
from tests.node.apps.simulate.federation.wires import BANDWIDTH, OVERHEAD, Lane


def lane(agenda: Agenda, loss: float = 0.0) -> Lane:
    return Lane(agenda, Draws(1), 0.1, loss)


def test_events_stay_in_order_whatever_is_late() -> None:
    agenda, seen = Agenda(), list[int]()
    one = lane(agenda, loss=0.3)
    for number in range(50):
        one.send(10, lambda number=number: seen.append(number))  # type: ignore[misc]  # its default
    agenda.run(10)
    assert seen == list(range(50))


def test_what_is_lost_comes_later() -> None:
    times = []
    for loss in (0.0, 1.0):
        agenda = Agenda()
        lane(agenda, loss).send(10, lambda: times.append(agenda.now))  # noqa: B023  # run below
        agenda.run(10)
    assert times[1] - times[0] == SENT_AGAIN


def test_a_large_event_keeps_the_others_waiting() -> None:
    agenda = Agenda()
    one = lane(agenda)
    free = [one.is_free]
    one.send(10**6, lambda: None)
    assert one.free_at == (10**6 + OVERHEAD) / BANDWIDTH
    free.append(one.is_free)
    agenda.run(one.free_at)
    assert [*free, one.is_free] == [True, False, True]
    assert one.bytes == 10**6 + OVERHEAD


def test_what_is_under_way_when_it_is_cut_is_lost() -> None:
    agenda, seen = Agenda(), list[str]()
    one = lane(agenda)
    one.send(10, lambda: seen.append("early"))
    agenda.run(1)
    one.send(10, lambda: seen.append("late"))
    one.cut()
    agenda.run(2)
    assert seen == ["early"]


def test_what_something_weighs() -> None:
    shared = bytes(10_000)
    assert weigh([shared]) == weigh([shared, shared]) - 8
    assert weigh({"key": [bytes(1_000), (bytes(2_000),)]}) > 3_000
    assert weigh(weigh) == 0
