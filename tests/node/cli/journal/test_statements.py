"""Key statements and ended IDs in `parley journal verify`."""

from pathlib import Path

from tests.node.cli.conftest import Parley
from tests.node.cli.journal.conftest import theft


def test_verify_lists_statements_and_ended_ids(parley: Parley, presented: Path, key: Path) -> None:
    made = theft()
    alice, bob, heir = (one.node_id.text for one in (made.alice, made.bob, made.heir))
    done = parley("journal", "verify", str(presented), "--auditor-key", str(key), "--json")
    assert done.code == 0
    assert (done.last["statements"], done.last["ended"], done.last["findings"]) == (2, 1, 0)
    statements = [line for line in done.lines if line["event"] == "statement"]
    assert {(line["journal"], line["direction"]) for line in statements} == {
        (alice, "received"),
        (heir, "sent"),
    }
    for line in statements:
        assert (line["presenter"], line["status"], line["kind"]) == (heir, "ok", "succession")
        assert (line["origin"], line["successor"]) == (bob, heir)
        assert (line["by_recovery"], line["made_ms"]) == (True, made.made_ms)
    (ended,) = [line for line in done.lines if line["event"] == "ended"]
    assert (ended["journal"], ended["origin"]) == (alice, bob)
    assert (len(ended["before"]), len(ended["after"])) == (1, 2)
    assert ended["session"] not in {*ended["before"], *ended["after"]}


def test_verify_explains_the_evidence(parley: Parley, presented: Path, key: Path) -> None:
    done = parley("journal", "verify", str(presented), "--auditor-key", str(key))
    out = " ".join(done.out.split())
    for text in ("presented key statements", "ended IDs", "recovery key", "2023-11-14 22:13:20"):
        assert text in out
    assert "invalidates none of them" in out
    assert "a thief can backdate" in out


def test_without_a_key_there_are_no_statements(parley: Parley, presented: Path) -> None:
    done = parley("journal", "verify", str(presented), "--json")
    assert (done.last["statements"], done.last["ended"]) == (0, 0)
