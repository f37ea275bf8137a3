"""Each case of the dialects runs for a moment, and each flood; no time is asserted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import page, store
from benchmarks.dialects import report, run
from benchmarks.dialects.cases import DIALECT_CASES, FAULTS
from benchmarks.dialects.tables import faults_table, latency_table, throughput_table
from benchmarks.dialects.wires import WIRES, uuid
from benchmarks.rounds import Measurement, measure

SHORT = 0.05
FEW = 4
# One of each kind: what is left differs by a number or an address.
KINDS = [
    "events-64",
    "simproto-64-raw",
    "named-typed",
    "relay-mixed-unix",
    "relay-broadcast-tcp",
    "relay-latency-unix",
]
FLOODED = ["simproto-unread", "named-maximal", "relay-garbage", "relay-requests"]


@pytest.mark.process
@pytest.mark.parametrize("name", KINDS)
def test_a_case_runs(name: str) -> None:
    case = DIALECT_CASES[name]
    task = case.lasting(SHORT)
    found = measure(case.side, replace(task, count=min(task.count, FEW)), quiet=0)
    assert found.operations > 0
    assert found.value > 0
    assert found.lost == 0
    (row,) = json.loads(json.dumps(report.case_rows({name: [found]})))
    assert report.case_line(row).startswith(name)


@pytest.mark.process
@pytest.mark.parametrize("name", FLOODED)
def test_a_flood_leaves_the_others_served(name: str) -> None:
    found = run.flooded(FAULTS[name], SHORT, quiet=0)
    assert 0 < found.p50 <= found.p99 <= found.worst
    assert found.megabytes > 0
    assert found.connections > 0


def test_rounds_are_of_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    noise = iter([0.0, 0.5, 0.1, 0.0, 0.0])

    def measured(side: str, task: object, quiet: float) -> Measurement:
        others = next(noise)
        return Measurement(
            value=100 + others, operations=1, client_us=1, server_us=2, others=others
        )

    monkeypatch.setattr(run, "measure", measured)
    found = run.run_cases(["calls-64", "events-64"], 1.0, 2, 4.0, order.append)
    assert order == ["calls-64", "events-64"] * 2
    # The second one was disturbed, and is measured again.
    assert [one.others for one in found["events-64"]] == [0.1, 0.0]
    first, second = report.case_rows(found)
    assert "ratio" not in first
    assert second["beside"] == "calls-64"
    assert second["ratio"] == [1.0, 1.0, 1.001]
    assert "| 1.00 (1.00 to 1.00) of `calls-64` |" in throughput_table([first, second])


def test_a_flood_is_beside_the_calm() -> None:
    def flooded(p99: float, connections: int) -> run.Flooded:
        return run.Flooded(
            p50=10, p99=p99, worst=90, others=0, megabytes=1.5, connections=connections, grown=10**6
        )

    names = {"relay-calm": [flooded(20, 0)] * 2, "relay-unread": [flooded(30, 3), flooded(50, 3)]}
    calm, unread = report.fault_rows(names)
    assert "ratio" not in calm
    assert unread["ratio"] == [2.0, 1.5, 2.5]
    *_, line = faults_table([calm, unread]).splitlines()
    assert line.startswith("| `relay`: requests, and reads nothing | 10.0 | 40.0 | 30.0 to 50.0 |")
    assert "relay-unread" in report.fault_line(unread)


def test_latencies_have_a_table_of_their_own() -> None:
    time = Measurement(value=30, operations=1, client_us=1, server_us=1, others=0, p99=70)
    rows = report.case_rows({"relay-latency-tcp": [time]})
    assert latency_table(rows).splitlines()[-1].endswith("| 30.0 | 70.0 |")
    assert throughput_table(rows) == "Nothing was measured yet."


def test_what_the_page_shows_is_of_these_cases() -> None:
    dialects, faults = (store.load(name) for name in page.DIALECTS)
    assert [row["case"] for row in dialects] == list(DIALECT_CASES)
    assert [row["fault"] for row in faults] == list(FAULTS)


def test_without_figures_the_tables_say_so(tmp_path: Path) -> None:
    text = page.render("<!-- measured: dialects-machine -->\n<!-- end -->", tmp_path)
    assert "Nothing was measured yet." in text


@pytest.mark.parametrize(("name", "size"), [("simproto", 128 + 7 + 17), ("relay", 128 + 36)])
def test_a_request_is_as_long_as_the_document_says(name: str, size: int) -> None:
    assert len(WIRES[name].request(bytes(128), 1)) == size


def test_named_requests_count_what_follows_their_lengths() -> None:
    text = WIRES["named"].request(b"x", 1)
    assert WIRES["named"].answer_size(text) == len(text)


def test_clients_are_never_called_as_everybody_is() -> None:
    assert uuid(-1) == bytes(16)
    assert uuid(0) != bytes(16)
