"""The judge can fail: each broken promise is reported once."""

from copy import deepcopy
from typing import Any

import pytest

from tests.soak.judge import (
    GROWTH,
    check_connection,
    check_epochs,
    check_files,
    check_rest,
    check_usage,
)
from tests.soak.samples import Growth

MIB = 2**20


def line(sent: dict[str, Any], received: dict[str, int], *, graceful: bool = True) -> Any:
    """Return a side's line about a connection."""
    more: dict[str, Any] = {"violations": [], "uncounted": 0}
    return {"sent": sent, "received": received, "graceful": graceful, **more}


def broken(sent: list[object], came: int, *, graceful: bool) -> list[str]:
    """Return a flow from client to server of which only some items arrived."""
    client = line({"calls/0": sent}, {}, graceful=graceful)
    server = line({}, {"calls/0": came}, graceful=graceful)
    return [what.split(", calls/0: ")[1] for what in check_connection(3, client, server)]


def test_a_clean_end_is_exact_and_a_cut_is_not() -> None:
    assert broken([5, 5, True], 5, graceful=True) == []
    assert broken([5, 4, True], 4, graceful=True) == ["clean end, 5 sent, 4 came"]
    assert broken([5, 4, True], 4, graceful=False) == []
    assert broken([5, 4, False], 4, graceful=True) == []


def test_acknowledged_data_was_processed() -> None:
    assert broken([5, 4, True], 3, graceful=False) == ["4 acknowledged, 3 came"]
    assert broken([5, 4, True], 6, graceful=False) == ["5 sent, 6 came"]
    alone = line({"calls/0": [1, 1, True]}, {}, graceful=False)
    assert len(list(check_connection(3, alone, None))) == 1
    assert len(list(check_connection(3, None, line({}, {"x": 1}, graceful=False)))) == 1


def test_violations_of_a_side_are_reported() -> None:
    seen = {**line({}, {}), "violations": ["gap"], "uncounted": 2}
    found = list(check_connection(3, line({}, {}), seen))
    assert found == ["connection 3, server: gap", "connection 3, server: 2 violations more"]
    assert len(list(check_connection(3, line({}, {}), line({}, {}, graceful=False)))) == 1


# The streams of a topic at rest, each of which is read on one side.
SUBSCRIPTIONS = {"4": [None, 0, 0, 0], "5": [None, 0, 0, 0]}


def look(credit: int, left: int) -> dict[str, Any]:
    """Return a connection at rest, with one stream that is open in both directions."""
    return {
        "connections": {
            "0": {
                "streams": {"2": [credit, 1_000, left, 1_000 - left], **SUBSCRIPTIONS},
                "unconsumed": 0,
                "committed": 1_000,
                "queued": 0,
                "asking": 0,
                "answering": 0,
                "stream_requests": 0,
                "deadlines": False,
                "kept": 1,
                "losses": {"feed": [0, 0], "ticker": [9, 9]},
                "notes": {"feed": 50},
            }
        },
        "published": {"feed": 50},
    }


def test_rest_as_it_should_be() -> None:
    assert list(check_rest(look(600, 700), look(700, 600))) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["unconsumed"], 64, ["unconsumed is 64"]),
        (["queued"], 1, ["queued is 1"]),
        (["asking"], 1, ["asking is 1"]),
        (["answering"], 2, ["answering is 2"]),
        (["stream_requests"], 1, ["stream_requests is 1"]),
        (["deadlines"], True, ["deadlines is True"]),
        (["kept"], 2, ["2 streams kept of 3"]),
        (["committed"], 900, ["windows of 1000 bytes, 900 committed"]),
        (["losses", "ticker"], [8, 9], ["ticker: 9 notes missing, 8 told"]),
        (["notes", "feed"], 49, ["feed at 49 of 50"]),
        (["streams", "2"], [600, 1_000, 700, 299], ["stream 2: 1 bytes of window are lost"]),
        (
            ["streams", "2"],
            [599, 1_000, 700, 300],
            ["stream 2: window has 600 left, the other side's credit is 599"],
        ),
        (
            ["streams"],
            SUBSCRIPTIONS,
            [
                "streams ['4', '5'], on the other side ['2', '4', '5']",
                "1 streams kept of 2",
                "windows of 0 bytes, 1000 committed",
                "streams ['2', '4', '5'], on the other side ['4', '5']",
                "stream 2: window has 600 left, the other side's credit is None",
            ],
        ),
    ],
)
def test_activity_at_rest_is_reported(path: list[str], value: Any, said: list[str]) -> None:
    client = deepcopy(look(600, 700))
    place = client["connections"]["0"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    found = list(check_rest(client, look(700, 600)))
    assert [one.split(": ", 1)[1] for one in found] == said


def test_credit_that_is_kept_back_is_told() -> None:
    found = list(check_rest(look(600, 500), look(500, 600)))
    assert len(found) == 1
    assert found[0].endswith("500 of 1000 bytes consumed and not granted")


def test_a_connection_that_only_one_side_has_is_told() -> None:
    nothing = {"connections": {}, "published": {"feed": 50}}
    assert len(list(check_rest(look(600, 700), nothing))) == 1


def usage(more: int = 0, memory: float = 0, idle: float = 0.0, seconds: float = 600) -> list[str]:
    """Return the usage of a process that ends with `more` of everything."""
    before = {"files": 9, "threads": 2, "tasks": 3}
    after = {name: count + more for name, count in before.items()}
    grown = Growth(0, memory, 0, seconds)
    return list(check_usage("client", grown, before, after, idle))


def test_usage() -> None:
    assert usage(more=-1) == usage(memory=GROWTH, idle=0.019) == []
    assert len(usage(more=2)) == 3
    assert usage(memory=9 * MIB) == ["client: memory grew by 9.0 MiB"]
    assert usage(memory=9 * MIB, seconds=3) == []
    assert usage(idle=0.02) == ["client: 2.0% of a core while idle"]
    assert list(check_files("client", 18, 9, 3)) == []
    assert len(list(check_files("client", 19, 9, 3))) == 1


def test_epochs() -> None:
    good = {"longest": 4.4, "lag": 0.2, "sent": 23, "received": 23, "seconds": 100.0}
    good |= {"connections": 2, "rekeys": 1}
    assert list(check_epochs("client", good)) == []
    for name, value in (("longest", 4.5), ("lag", 0.1), ("sent", 22), ("rekeys", 0)):
        assert len(list(check_epochs("client", {**good, name: value}))) == 1, name
    assert len(list(check_epochs("client", {**good, "received": 22}))) == 1
