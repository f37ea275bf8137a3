"""`parley journal verify`: exit codes, counts and findings. The audit is tested separately."""

from pathlib import Path

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.keyfile import save_auditor_key
from parley._node.cli.journal import segments, verify
from tests.node.cli.conftest import Parley
from tests.node.protocol.pair import ALICE, BOB


def altered(journals: Path) -> Path:
    """The same, with a bit of an event of Alice's turned."""
    (path,) = journals.glob(f"{ALICE.node_id.text}*-00000000.pjl")
    data = bytearray(path.read_bytes())
    data[-300] ^= 1
    path.write_bytes(data)
    return journals


@pytest.mark.parametrize("with_key", [False, True])
def test_honest_journals(parley: Parley, journals: Path, key: Path, with_key: bool) -> None:
    options = ["--auditor-key", str(key)] if with_key else []
    done = parley("journal", "verify", str(journals), "--json", *options)
    assert (done.code, done.err) == (0, "")
    (last,) = done.lines
    assert (last["journals"], last["segments"], last["sessions"]) == (2, 4, 2)
    assert (last["findings"], last["kinds"], last["decrypted"]) == (0, {}, with_key)
    assert set(last["statuses"]) <= {"ok", "unsealed"}
    assert last["events"] == sum(last["statuses"].values()) >= 80
    shown = parley("journal", "verify", str(journals), *options)
    assert (shown.code, "payloads were not decrypted" in shown.out) == (0, not with_key)
    assert "0 findings" in shown.out
    assert (last["parted"], last["resumed"]) == (2, 1)
    assert "2 sessions (parted 2 times, resumed 1 time), 1 tunnel, " in shown.out
    assert last["tunnels"] == 1


def test_pieces_make_no_difference(
    parley: Parley, journals: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("journal", "verify", str(journals), "--json", "--auditor-key", str(key))
    whole = parley(*arguments).last
    monkeypatch.setattr(segments, "_PIECE_RECORDS", 1)
    assert parley(*arguments).last == whole


def test_petnames_stand_beside_ids(parley: Parley, journals: Path) -> None:
    alice, bob = str(ALICE.node_id), str(BOB.node_id)
    for name, who in (("anna", alice), ("[b]", bob)):
        assert parley("peers", "add", who, name).code == 0
    shown = parley("journal", "verify", str(altered(journals))).out
    assert f"journal of {alice} (anna)\n" in shown
    assert f" 9 {alice[:8]} (anna) 2027" in shown  # of a finding
    assert f" received journal of {alice[:8]} (anna)\t" in shown  # of events that are not ok
    inspected = parley("journal", "inspect", str(journals), "--sessions", "--node", alice).out
    assert f"{bob[:8]} ([b])\t" in inspected  # no markup


def test_findings(parley: Parley, journals: Path, key: Path) -> None:
    arguments = ("journal", "verify", str(altered(journals)), "--auditor-key", str(key))
    done = parley(*arguments, "--json")
    assert done.code == 7
    findings = [line for line in done.lines if line["event"] == "finding"]
    assert done.last["findings"] == len(findings) > 0
    assert sum(done.last["kinds"].values()) == len(findings)
    for finding in findings:
        assert finding["journal"] == ALICE.node_id.text
        assert finding["segment"].endswith("-00000000")
        assert finding["evidence"]
        assert finding["time"].startswith("2027-01-15T08:00:0")
    shown = parley(*arguments)
    assert shown.code == 7
    assert findings[0]["kind"] in shown.out
    assert parley(*arguments, "--node", BOB.node_id.text).code == 0  # his own is whole


def test_a_table_has_an_end(
    parley: Parley, journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "MOST_SHOWN", 1)
    for path in altered(journals).iterdir():
        path.write_bytes(path.read_bytes()[:-900])
    assert "--json shows all" in parley("journal", "verify", str(journals)).out


def test_keys_that_do_not_fit(parley: Parley, journals: Path, key: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    save_auditor_key(other, AuditorPrivateKey.create())
    both = ["--auditor-key", str(other), "--auditor-key", str(key)]
    assert parley("journal", "verify", str(journals), *both).code == 0
    alone = parley("journal", "verify", str(journals), "--json", *both[:2])
    told = [line for line in alone.lines if line["event"] == "not-ok"]
    assert {line["status"] for line in told} == {"undecryptable"}
    assert sum(line["count"] for line in told) == alone.last["statuses"]["undecryptable"]
    assert {(line["first"], line["last"] - line["count"]) for line in told} == {(1, 0)}
    ways = [(line["journal"], line["session"], line["direction"]) for line in told]
    assert len(set(ways)) == len(ways)
    shown = parley("journal", "verify", str(journals), *both[:2]).out
    assert f"session {told[0]['session'][:8]} {told[0]['direction']}" in shown
    other.chmod(0o644)
    assert parley("journal", "verify", str(journals), *both).code == 6
