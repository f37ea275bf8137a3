"""The benchmarks of the bus run for a moment, without Lightbus; no time is asserted."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from benchmarks import page
from benchmarks.bus import __main__ as command
from benchmarks.bus import lightbus_side, report, stored
from benchmarks.bus.bare import open_fsync
from benchmarks.bus.cases import CASES, LIGHTBUS, SIDES, TARGETS
from benchmarks.bus.run import Effort, Findings, Found, run
from benchmarks.bus.sides import NoWorkError, Place
from benchmarks.bus.tables import bus_machine, figures_table, stored_table, targets_table
from tests.redis_server import RedisServer

SHORT = Effort(seconds=0.02, events=40, latencies=2, rounds=1, quiet=0)
EMBEDDED = ["fsync", "sqlite3", "sqlite"]
ON_REDIS = ["redis-one", "redis-many", "redis"]


def unseen(name: str) -> None:
    assert name


def check(findings: Findings, sides: list[str]) -> None:
    """Every side has every case of its own, and found something."""
    for case, found in findings.rounds.items():
        assert list(found) == [name for name in sides if case in SIDES[name].cases], case
        assert all(one.value > 0 for rounds in found.values() for one in rounds), case


def test_what_needs_no_server_runs() -> None:
    findings = run(list(CASES), EMBEDDED, SHORT, unseen)
    check(findings, EMBEDDED)
    rows = report.rows(findings)
    assert json.loads(json.dumps(rows)) == rows
    judged = [(row["target"], row["side"]) for row in rows if "target" in row]
    assert judged == [("publish-10", "sqlite"), ("consume-1", "sqlite")]


@pytest.mark.process
def test_another_nodes_bus_runs() -> None:
    check(run(["publish-10", "handler-8"], ["peer"], SHORT, unseen), ["peer"])


def test_what_is_on_redis_runs(redis_server: RedisServer) -> None:
    assert redis_server.running  # there is such a program; they have a server of their own
    cases = ["publish-10", "batches-100", "consume-2", "latency"]
    findings = run(cases, ON_REDIS, SHORT, unseen)
    check(findings, ON_REDIS)
    assert findings.left_out == {}


def test_without_a_server_redis_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.bus.run.redis_program", lambda: None)
    findings = run(["publish-1"], ["fsync", "redis", LIGHTBUS], SHORT, unseen)
    check(findings, ["fsync"])
    assert findings.left_out == {"redis": "there is no redis-server"}


def test_without_uv_lightbus_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert lightbus_side.find_python() == "3.9"
    with (
        pytest.raises(lightbus_side.NoLightbusError, match="uv is not installed"),
        lightbus_side.running_lightbus("redis://127.0.0.1:1/0", 1),
    ):
        pass


@pytest.mark.parametrize("side", ["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def test_what_is_stored_has_a_size(
    side: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if side == "redis":
        request.getfixturevalue("redis_server")  # skips where there is none
    effort = stored.Effort(seconds=0.02, events=20, quiet=0)

    async def measure() -> list[stored.Row]:
        return await stored.measure(side, [40, 80], effort, as_json=False)

    first, second = anyio.run(measure)
    assert (first["stored"], second["stored"]) == (40, 80)
    assert first["publish_ratio"] == first["newest_ratio"] == 1
    assert all(second[f"{work}_us"] > 0 for work in stored.WORKS)
    assert capsys.readouterr().out.count(" stored (filled in ") == 2
    assert f"| `{side}`, 80 |" in stored_table([first, second])


def found(**values: float) -> dict[str, list[Found]]:
    """Two rounds of each side, the second a tenth quicker."""
    return {
        side.replace("_", "-"): [Found(value, 0.01), Found(value * 1.1, 0.02)]
        for side, value in values.items()
    }


def test_aims_are_met_or_missed() -> None:
    rounds = {
        "publish-1": found(sqlite3=1_000, redis=500, lightbus=100),
        "publish-10": found(sqlite=500, peer=300, redis=1_000, lightbus=100),
        "consume-1": found(sqlite=49_000),
    }
    rows = report.rows(Findings(rounds))
    met = {(row["target"], row["side"]): row["met"] for row in rows if "target" in row}
    assert met == {
        ("publish-10", "sqlite"): True,  # 0.5 of the bare loop, though not 20,000
        ("consume-1", "sqlite"): True,  # the median of 49,000 and 53,900
        ("publish-10", "peer"): True,
        ("publish-1", "redis"): False,
        ("publish-10", "redis"): True,
    }
    text = "\n".join(map(report.line, rows))
    assert "525 events/s, aim 20,000; or 0.50 of sqlite3 publish-1, aim 0.4: met" in text
    assert "5.00 of lightbus publish-1, aim 6: MISSED" in text
    table = targets_table(rows)
    assert "| `publish-1`, `redis` | 5.00 of lightbus publish-1, aim 6 | missed |" in table
    assert "| `sqlite`: the bus on SQLite |  | 525 | 51,450 |" in figures_table(rows)
    machine = {"cpu": "a", "cores": "2", "os": "b", "python": "c", "uvloop": "d"}
    assert "Rounds: 2. Other processes used up to 0.02 cores" in bus_machine(machine, rows)


def test_a_latency_has_its_tail() -> None:
    rows = report.rows(Findings({"latency": {"sqlite": [Found(250, 0, p99=900)]}}))
    assert report.line(rows[0]).endswith("p99 900 us")
    assert figures_table(rows).splitlines()[-1].endswith("| 250 (900) |")


def test_targets_are_of_cases_and_sides_that_are() -> None:
    for target in TARGETS:
        assert target.case in SIDES[target.side].cases
        assert not target.beside or target.beside_case in SIDES[target.beside].cases


@pytest.mark.anyio
async def test_a_bare_loop_has_no_consumers(anyio_backend: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    with pytest.raises(NoWorkError):
        place.server.stop()
    async with open_fsync(place) as side:
        for work in (
            side.publish(2, 1),
            side.publish_batches(1, 1),
            side.consume(1, 1),
            side.handle(1, 1),
            side.latencies(1),
        ):
            with pytest.raises(NoWorkError):
                await work


@pytest.mark.parametrize("main", [command.main, stored.main])
def test_an_unknown_name_is_refused(
    main: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bus", "nonsense"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "nonsense" in capsys.readouterr().err


def test_rows_are_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--json", "--seconds", "0.01", "--rounds", "1", "--quiet", "0"]
    monkeypatch.setattr(sys, "argv", ["bus", "publish-1", "--sides", "fsync", *options])
    command.main()
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["case"], row["side"], row["unit"]) == ("publish-1", "fsync", "events/s")


def test_rows_are_put_in_the_place_of_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    stored_rows: list[report.Row] = [
        {"case": "publish-1", "value": 1},
        {"case": "consume-1", "value": 1},
        {"target": "publish-1", "value": 1},
    ]
    saved: list[report.Row] = []
    monkeypatch.setattr("benchmarks.store.load", lambda name: stored_rows)
    monkeypatch.setattr("benchmarks.store.save", lambda name, rows: saved.extend(rows))
    command.keep("bus", [{"case": "publish-10", "value": 2}, {"case": "publish-1", "value": 2}])
    assert [(row["case"], row["value"]) for row in saved] == [
        ("publish-1", 2),
        ("publish-10", 2),
        ("consume-1", 1),
    ]


def test_without_figures_the_tables_say_so(tmp_path: Path) -> None:
    for part in ("bus-machine", "bus", "bus-targets", "bus-always", "bus-stored"):
        text = page.render(f"<!-- measured: {part} -->\n<!-- end -->", tmp_path)
        assert "Nothing was measured yet." in text
