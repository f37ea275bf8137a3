"""`parley bus tail` and `groups`, which don't change the bus."""

import pytest

from parley._crypto.identity import Identity
from tests.node.cli.conftest import NAME, Parley, Publish, said
from tests.node.cli.processes import Processes


def consume(parley: Parley, bus: str, group: str, *args: str) -> None:
    assert parley("bus", "consume", bus, NAME, "--group", group, *args).code == 0


def test_what_is_stored(parley: Parley, bus: str, publish: Publish) -> None:
    ids = publish(3)
    done = parley("bus", "tail", bus, NAME)
    assert done.out == "".join(f'{id}\t{{"n": {n}}}\n' for n, id in enumerate(ids, 1))
    done = parley("bus", "tail", bus, NAME, "--json", "--start", ids[1], "--count", "1")
    (event,) = said(done, "event")
    assert (event["id"], event["data"], "attempt" in event) == (ids[1], {"n": 2}, False)
    assert done.last == {"event": "done", "count": 1}
    assert parley("bus", "tail", bus, NAME, "--start", "new").out == ""
    assert parley("bus", "tail", bus, "shop.nothing", "--json").last["count"] == 0
    assert parley("bus", "groups", bus, NAME, "--json").last["groups"] == 0


def test_what_is_to_come(processes: Processes, parley: Parley, bus: str, publish: Publish) -> None:
    ids = publish(1)
    running = processes.start(
        *("bus", "tail", bus, NAME, "-f", "--json", "--start", "first", "--count", "3")
    )
    running.event("following")
    assert running.event("event")["id"] == ids[0]
    ids = publish(2)
    assert [running.event("event")["id"] for _ in ids] == ids
    assert running.finish().code == 0


def test_groups(parley: Parley, bus: str, publish: Publish) -> None:
    ids = publish(3)
    publish(1, "shop.paid")
    consume(parley, bus, "mailer", "--count", "2", "--consumer", "one")
    consume(parley, bus, "audit", "--idle", "0.05s", "--start", "new")
    done = parley("bus", "groups", bus, "--consumers", "--json")
    assert (done.code, done.last) == (0, {"event": "done", "groups": 2, "behind": 0})
    streams = {line["name"]: line for line in said(done, "stream")}
    assert list(streams) == [NAME, "shop.paid"]
    assert (streams[NAME]["length"], streams[NAME]["last_id"]) == (3, ids[2])
    assert streams[NAME]["first_time"] <= streams[NAME]["last_time"]
    audit, mailer = said(done, "group")
    assert (audit["group"], audit["lag"]) == ("audit", 0)
    assert (mailer["stream"], mailer["lag"] + mailer["pending"]) == (NAME, 1)
    assert mailer["last_id"] in ids[1:]
    (one,) = (line for line in said(done, "consumer") if line["group"] == "mailer")
    assert one["name"] == "one"
    shown = parley("bus", "groups", bus, "--consumers").out
    for text in ("events", "groups", "consumers", "shop.paid", "mailer", "one"):
        assert text in shown
    only = parley("bus", "groups", bus, "shop.paid", "--json")
    assert [line["event"] for line in only.lines] == ["done"]


def test_a_consumer_of_a_known_peer_has_its_petname(
    parley: Parley, bus: str, publish: Publish
) -> None:
    publish(1)
    node_id = str(Identity.create().node_id)
    consume(parley, bus, "mailer", "--count", "1", "--consumer", f"{node_id}/one")
    assert parley("peers", "add", node_id, "bob").code == 0
    assert f"\t{node_id} (bob)/one\t" in parley("bus", "groups", bus, "--consumers").out


def test_lag(parley: Parley, bus: str, publish: Publish) -> None:
    publish(3)
    consume(parley, bus, "mailer", "--count", "1")
    consume(parley, bus, "audit", "--idle", "0.05s", "--start", "new")
    for name in ([], [NAME]):
        assert parley("bus", "groups", bus, *name, "--max", "2").code == 0
        done = parley("bus", "groups", bus, *name, "--max", "1")
        late = "behind: mailer has more than 1 unacknowledged events"
        assert (done.code, done.out.splitlines()[-1]) == (7, late)
        done = parley("bus", "groups", bus, *name, "--max", "1", "--json")
        assert [(line["group"], line["behind"]) for line in said(done, "group")] == [
            ("audit", False),
            ("mailer", True),
        ]
        assert (done.code, done.last) == (7, {"event": "done", "groups": 2, "behind": 1})
    only = parley("bus", "groups", bus, NAME, "--max", "1", "--group", "audit", "--json")
    assert (only.code, only.last["groups"]) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            [NAME, "--group", "nobody"],
            1,
            f"cannot find the group 'nobody' of {NAME}; list all with: parley bus groups BUS "
            f"{NAME}",
        ),
        (
            ["shop.orderd", "--max", "0"],
            1,
            "cannot find a group of shop.orderd: no group consumes this event",
        ),
        (["--group", "audit"], 2, "cannot show the group 'audit' of all events; give NAME"),
    ],
)
def test_no_such_group(
    parley: Parley,
    bus: str,
    publish: Publish,
    arguments: list[str],
    code: int,
    sentence: str,
) -> None:
    publish(1)
    consume(parley, bus, "mailer", "--count", "1")
    done = parley("bus", "groups", bus, *arguments)
    assert (done.code, done.err) == (code, f"parley: {sentence}\n")
