"""`parley journal inspect`: counts of complete and damaged journals."""

from pathlib import Path

import pytest

from tests.node.cli.conftest import Parley
from tests.node.journal.joined_tunnels import TRACE, server
from tests.node.protocol.pair import ALICE, BOB


def test_all_there_is(parley: Parley, journals: Path) -> None:
    done = parley("journal", "inspect", str(journals), "--json", "--sessions")
    assert (done.code, done.err) == (0, "")
    segments = [line for line in done.lines if line["event"] == "segment"]
    assert [(line["number"], line["state"]) for line in segments] == [
        (0, "closed"),
        (1, "closed"),
    ] * 2
    for line in segments:
        path = journals / line["segment"]
        assert line["size"] == path.stat().st_size
        assert line["first_time"] <= line["last_time"]
        assert line["records"]["segment"] == line["records"]["segment end"] == 1
        assert (line["cut"], line["unfinished"], line["damaged"]) == (0, 0, 0)
        assert line["auditors"][0].startswith("parley-auditor-")
    sessions = [line for line in done.lines if line["event"] == "session"]
    assert len({line["session"] for line in sessions}) == 2  # both nodes met twice
    assert len(sessions) == 4
    of_alice = [line for line in sessions if line["node_id"] == ALICE.node_id.text]
    assert {line["remote_node_id"] for line in of_alice} == {BOB.node_id.text}
    assert [(line["parted"], line["resumed"]) for line in of_alice] == [(2, 1), (0, 0)]
    assert all(line["code"] == 0 and line["ended"] >= line["began"] for line in sessions)
    assert (
        sum(line["sent"] + line["received"] for line in sessions) == done.last["records"]["event"]
    )
    assert done.last["journals"] == done.last["runs"] == 2
    assert (done.last["segments"], done.last["sessions"], done.last["damaged"]) == (4, 4, 0)


def test_for_people(parley: Parley, journals: Path) -> None:
    done = parley("journal", "inspect", str(journals), "--sessions")
    assert done.code == 0
    for said in (ALICE.node_id.text, BOB.node_id.text, "runs", "segments", "sessions", "closed"):
        assert said in done.out


def test_tunnels(parley: Parley, journals: Path) -> None:
    done = parley("journal", "inspect", str(journals), "--json", "--tunnels")
    (line,) = [line for line in done.lines if line["event"] == "tunnel"]
    assert (line["node_id"], line["trace"]) == (ALICE.node_id.text, TRACE.hex())
    assert (line["hop"], line["length"]) == (1, 3)
    assert (line["before"], line["after"]) == (server(1).text, server(3).text)
    assert (line["forward"], line["back"]) == (300, 70_000)
    assert line["began"] < line["ended"]
    assert done.last["records"]["tunnel"] == 1
    shown = parley("journal", "inspect", str(journals), "--tunnels").out
    assert all(said in shown for said in (TRACE.hex()[:8], "1 of 2", "70,000"))
    assert TRACE.hex()[:8] not in parley("journal", "inspect", str(journals)).out


def test_one_node(parley: Parley, journals: Path, tmp_path: Path) -> None:
    wanted = ALICE.node_id.text
    for node in (wanted, wanted[:8]):
        done = parley("journal", "inspect", str(journals), "--json", "--node", node)
        assert {line["node_id"] for line in done.lines if line["event"] == "segment"} == {wanted}
    for node in ("", wanted[:3], "x" * 52):
        assert parley("journal", "inspect", str(journals), "--node", node).code == 2
    assert parley("journal", "inspect", str(tmp_path / "none")).code == 6
    (tmp_path / "empty").mkdir()
    assert "cannot read journals in" in parley("journal", "inspect", str(tmp_path / "empty")).err


def test_what_a_crash_left(parley: Parley, journals: Path) -> None:
    first, second = sorted(journals.glob(f"{ALICE.node_id.text}*"))
    open_one = first.rename(f"{first}.open")
    with open_one.open("ab") as file:
        file.write(bytes(7))
    newest = second.rename(f"{second}.open")
    newest.write_bytes(newest.read_bytes()[:-5])
    done = parley("journal", "inspect", str(journals), "--json", "--node", ALICE.node_id.text)
    left, live = (line for line in done.lines if line["event"] == "segment")
    assert (left["state"], left["unfinished"]) == ("left open", 7)
    assert live["state"] == "open"
    assert live["unfinished"] > 0
    assert "segment end" not in live["records"]
    out = parley("journal", "inspect", str(journals)).out
    assert "7 bytes after" in " ".join(out.split())


@pytest.mark.parametrize("at", [12, 300, -40])
def test_damage_is_counted(parley: Parley, journals: Path, at: int) -> None:
    (path,) = journals.glob(f"{BOB.node_id.text}*-00000001.pjl")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    done = parley("journal", "inspect", str(journals), "--json")
    assert done.code == 0
    assert done.last["damaged"] > 0
