"""Rows and aims of what Parley is compared with; each peer runs for a moment where it is
installed, and no time is asserted."""

import json
import sys
from dataclasses import replace

import pytest

from benchmarks.peers import __main__ as command
from benchmarks.peers.run import (
    AIMS,
    OURS,
    PEER_CASES,
    PEERS,
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
    found = measure_side(side, replace(task, count=min(task.count, FEW)), quiet=0)
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


def test_aims_are_met_or_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def met() -> dict[str, bool]:
        return {row["aim"]: row["met"] for row in command.rows(findings()) if "aim" in row}

    monkeypatch.setattr(command, "core_is_compiled", lambda: False)
    assert met() == {"calls-64": True, "notes-1": True, "idle-memory": False}
    monkeypatch.setattr(command, "core_is_compiled", lambda: True)
    assert met() == {"calls-64": False, "notes-1": True, "idle-memory": False}
    assert PEERS["baseline"].versions() == ""
    text = [line for row in command.rows(findings()) for line in command.lines(row)]
    assert "calls-64: 0.85 of TLS streams, aim 1: MISSED" in text
    assert "idle-memory: 17,000, aim 16,384 at most: MISSED" in text


def test_aims_are_of_cases_and_sides_that_are() -> None:
    for aim in AIMS:
        assert aim.case in PEER_CASES
        assert aim.beside in (OURS, *PEERS)


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
    peer, case, aim = map(json.loads, capsys.readouterr().out.splitlines())
    assert peer["peer"] == aim["beside"] == "baseline"
    assert list(case["sides"]) == [OURS, "baseline"]
