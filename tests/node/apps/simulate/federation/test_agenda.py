"""What is to happen, in order."""

from tests.node.apps.simulate.federation.agenda import Agenda


def test_events_happen_by_their_time_and_then_in_the_order_they_were_put_down() -> None:
    agenda, seen = Agenda(), list[tuple[str, float]]()

    def see(name: str) -> None:
        seen.append((name, agenda.now))
        if name == "b":
            agenda.after(0.5, lambda: see("d"))
            agenda.at(0.1, lambda: see("c"))  # over already: at once, behind what is due

    agenda.at(2.0, lambda: see("e"))
    agenda.at(1.0, lambda: see("a"))
    agenda.at(1.0, lambda: see("b"))
    agenda.run(1.7)
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 1.5)]
    assert (agenda.now, agenda.happened) == (1.7, 4)
    agenda.run(2.0)
    assert seen[-1] == ("e", 2.0)
