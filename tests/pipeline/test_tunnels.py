"""Neighbours' records of a tunnel compared: each difference once, and no fault where it may be
honest."""

from datetime import timedelta

from parley._pipeline.reconcile.tunnels import MOST_LOST, compare_tunnels
from tests.pipeline.silver_frames import START, Row, in_ns, micros, tunnel

LATER = START + timedelta(hours=1)
# `z` keeps no journal, and the journal of `l` begins too late.
COVERED = {
    **dict.fromkeys("abcd", (micros(START), micros(LATER))),
    "l": (micros(LATER), micros(LATER)),
}


def scenes() -> list[list[Row]]:
    """Return the records of the servers along each path."""
    whole = tunnel("whole", "s", "a", "b", "c", "t")

    account = tunnel("account", "a", "b", "t", account="phone")  # whose home is no origin
    origin = tunnel("origin", "a", "b", "t")  # and here it is: it has no record

    under_way = tunnel("under way", "s", "a", "b", "t")  # it was cut off
    under_way["a"]["forward"] += MOST_LOST
    under_way["b"]["back"] += MOST_LOST

    too_much = tunnel("too much", "s", "a", "b", "t")  # not so many can be
    too_much["a"]["forward"] += MOST_LOST + 1
    too_much_back = tunnel("too much back", "s", "a", "b", "t")
    too_much_back["b"]["back"] += MOST_LOST + 1
    made_up = tunnel("made up", "s", "a", "b", "t")  # More bytes left than arrived.
    made_up["b"]["forward"] += 1
    made_up_back = tunnel("made up back", "s", "a", "b", "t")
    made_up_back["a"]["back"] += 1
    another_path = tunnel("another path", "s", "a", "b", "t")
    another_path["b"]["length"] = 5

    hidden = tunnel("hidden", "s", "a", "b", "c", "t")  # Two servers report it about one.
    del hidden["b"]
    last = tunnel("last", "s", "a", "b", "t")  # and one of the last one before the target
    del last["b"]
    invented = tunnel("invented", "s", "a", "b", "t")  # or of the first
    del invented["a"]
    elsewhere = tunnel("elsewhere", "s", "a", "b", "t")
    elsewhere["b"]["before"] = "d"

    silent = tunnel("silent", "s", "a", "z", "t")
    del silent["z"]
    late = [tunnel(f"late {number}", "s", "a", "l", "t") for number in range(2)]
    for made in late:
        del made["l"]

    twice = tunnel("twice", "s", "a", "b", "t")  # an origin used its trace again, a shorter way too
    shorter = tunnel("twice", "s", "a", "b")
    short = tunnel("thrice", "s", "a", "b", "t")  # And `b` reports one less.
    others = [twice, twice, shorter, short, short, {"a": short["a"]}]
    return [
        list(made.values())
        for made in (
            whole, account, origin, under_way, too_much, too_much_back, made_up, made_up_back,
            another_path, hidden, last, invented, elsewhere, silent, *late, *others,
        )
    ]  # fmt: skip


def test_each_difference_between_two_servers_is_told_once() -> None:
    said = [in_ns(row) for scene in scenes() for row in scene]
    rows = [found._asdict() for found in compare_tunnels(said, COVERED)]
    told = {
        (row["evidence"].partition(":")[0].partition(",")[0], row["kind"], row["journal"])
        for row in rows
        if row["kind"] != "not-covered"
    }
    assert told == {
        ("tunnel too much", "tunnel-differs", "a"),
        ("tunnel too much back", "tunnel-differs", "a"),
        ("tunnel made up", "tunnel-differs", "a"),
        ("tunnel made up back", "tunnel-differs", "a"),
        ("tunnel another path", "tunnel-differs", "a"),
        ("tunnel hidden", "tunnel-missing", "b"),
        ("tunnel last", "tunnel-missing", "b"),
        ("tunnel invented", "tunnel-missing", "a"),
        ("tunnel elsewhere", "tunnel-missing", "b"),
        ("tunnel elsewhere", "tunnel-missing", "d"),
        ("tunnel thrice", "tunnel-missing", "b"),
    }
    # Both neighbours of the server that hides it report it.
    assert len(rows) == len(told) + 2
    [outside] = [row for row in rows if row["kind"] == "not-covered"]
    assert (outside["journal"], outside["events"]) == ("l", 2)
    evidence = {row["evidence"] for row in rows}
    assert "tunnel made up, forward: 1000 bytes at a, but 1001 at the next server, b" in evidence
    assert (
        "tunnel last: a recorded that it forwarded it to this node, which has no record of it"
        in evidence
    )
    thrice = "tunnel thrice: a recorded 3 times that it forwarded it to this node, which has 2 "
    assert f"{thrice}records of it" in evidence
    for row in rows:
        assert row["segment"] is not None
        assert row["offset"] == 50
        assert row["time"] is not None
