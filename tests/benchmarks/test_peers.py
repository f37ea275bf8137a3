"""Rows of what Parley is compared with; each peer runs for a moment where it is
installed, and no time is asserted."""

import json
import sys
from dataclasses import replace

import pytest

from benchmarks.peers import __main__ as command
from benchmarks.peers.run import (
    OURS,
    PEER_CASES,
    PEERS,
    PURE,
    Effort,
    Findings,
    Peer,
    measure_side,
    run,
)
from benchmarks.rounds import Measurement

SHORT, FEW = 0.05, 4
OTHERS = [name for name, peer in PEERS.items() if peer.package]


@pytest.mark.parametrize("case", ["calls-64", "bulk-64k", "handshakes", "notes-100"])
@pytest.mark.parametrize("side", OTHERS)
def test_a_peer_runs(side: str, case: str) -> None:
    if why := PEERS[side].missing():
        pytest.skip(why)
    task = PEER_CASES[case].lasting(SHORT)
    found = measure_side(side, replace(task, count=min(task.count, FEW)), Effort(quiet=0))
    assert found.operations > 0
    assert found.value > 0
    assert found.client_us > 0
    assert found.server_us > 0
    assert found.lost == 0


def test_there_are_peers_to_run() -> None:
    missing = {name: PEERS[name].missing() for name in OTHERS if name != "nats"}
    assert not any(missing.values()), missing


def found(*values: float, cpu: float) -> list[Measurement]:
    """A round for each value, with so much processor time on each side."""
    return [Measurement(value, 100, cpu, cpu, 0.01) for value in values]


def findings() -> Findings:
    """Two rounds of ours and of three others."""
    return Findings(
        {
            "calls-64": {
                OURS: found(80, 90, cpu=20),
                "baseline": found(100, 100, cpu=10),
                "zenoh": found(40, 30, cpu=30),
            },
            "notes-1": {OURS: found(300, 300, cpu=1), "zenoh": found(100, 100, cpu=2)},
            "idle-memory": {OURS: found(17_000, 17_000, cpu=1)},
        }
    )


def test_ratios_are_of_one_round() -> None:
    rows = command.rows(findings())
    assert json.loads(json.dumps(rows)) == rows
    assert [row["peer"] for row in rows if "peer" in row] == ["baseline", "zenoh"]
    calls = next(row for row in rows if row.get("case") == "calls-64")
    assert calls["sides"]["zenoh"]["ratio"] == [2.5, 2.0, 3.0]
    assert calls["sides"]["zenoh"]["cpu_ratio"] == [1.5, 1.5, 1.5]
    assert calls["sides"]["baseline"]["ratio"] == [0.85, 0.8, 0.9]
    assert "ratio" not in calls["sides"][OURS]


def test_tables_have_a_column_for_each_side() -> None:
    calls = findings().rounds["calls-64"]
    figures = command.tables(command.rows(Findings({"calls-64": calls})))
    assert figures[0] == "| case | Parley | TLS streams | Zenoh |"
    assert figures[2] == "| `calls-64`, calls/s | 85.0 | 100 (0.85) | 35.0 (2.50) |"
    assert figures[-1] == "| `calls-64`, us | 40.0 | 20.0 (0.50) | 60.0 (1.50) |"


@pytest.mark.process
def test_an_uncompiled_parley_runs_by_its_own_interpreter() -> None:
    task = PEER_CASES["calls-64"].lasting(SHORT)
    assert measure_side(PURE, task, Effort(quiet=0, pure=sys.executable)).operations > 0
    with pytest.raises(OSError, match="no-such-python"):
        measure_side(PURE, task, Effort(quiet=0, pure="/no-such-python"))


def test_without_its_interpreter_an_uncompiled_parley_is_left_out() -> None:
    assert list(run([], [PURE], Effort(), lambda _: None).left_out) == [PURE]


def test_what_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Peer("zenoh", "Absent", "no-package-of-this-name")
    monkeypatch.setitem(PEERS, "zenoh", absent)
    left_out = run([], ["baseline", "zenoh"], Effort(), lambda _: None).left_out
    assert left_out == {"zenoh": "no-package-of-this-name is not installed (`--group peers`)"}


def test_without_a_server_nats_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    peer = replace(PEERS["nats"], package="anyio")  # whose package is there
    assert peer.missing() == "there is no nats-server on this machine"


@pytest.mark.process
def test_rows_are_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--json", "--seconds", "0.02", "--rounds", "1", "--quiet", "0"]
    monkeypatch.setattr(sys, "argv", ["peers", "handshakes", "--peers", "baseline", *options])
    command.main()
    peer, case = map(json.loads, capsys.readouterr().out.splitlines())
    assert peer["peer"] == "baseline"
    assert list(case["sides"]) == [OURS, "baseline"]
