"""`parley simulate` as a command: its journals, counts and errors."""

from collections import Counter
from pathlib import Path

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.keyfile import load_auditor_key
from parley._node.apps.simulate.tally import Tally, count
from parley._node.cli.simulate import named_outcomes
from tests.node.apps.simulate.journals import audit
from tests.node.cli.conftest import Parley

SMALL = ("--nodes", "2", "--minutes", "0.05", "--one-suite")


def test_journals_and_a_key(parley: Parley, tmp_path: Path) -> None:
    place = tmp_path / "j"
    done = parley("simulate", *SMALL, "--journals", str(place), "--json")
    assert done.code == 0, done.err
    last = done.last
    assert last["event"] == "done"
    assert last["auditor_key_file"] == str(tmp_path / "auditor.key")
    key = load_auditor_key(tmp_path / "auditor.key")
    assert last["auditor"] == key.public.text
    assert last["kept"]["records"]["event"] == count(place).total()
    assert last["traffic"]["sessions"] >= 1
    assert audit(place, key).findings == []
    again = parley("simulate", *SMALL, "--journals", str(place))
    assert again.code == 6
    assert f"cannot write journals to '{place}': it has journals already" in again.err


def test_for_people_and_for_an_auditor_elsewhere(parley: Parley, tmp_path: Path) -> None:
    key = AuditorPrivateKey.create()
    place = tmp_path / "j"
    options = ("--auditor", key.public.text, "--loop", "trio", "--traffic", "calls", "--rate", "5")
    done = parley("simulate", *SMALL, "--journals", str(place), *options)
    assert done.code == 0, done.err
    for word in ("sessions", "calls", "events recorded", "simulated  in "):
        assert word in done.out
    assert not (tmp_path / "auditor.key").exists()
    audited = audit(place, key)
    assert audited.findings == []
    assert {event["status"] for event in audited.events} <= {"ok", "unsealed"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--minutes", "0"], "invalid --minutes 0"),
        (["--rate", "0"], "invalid --rate 0"),
        (["--latency", "-1"], "invalid --latency -1"),
        (["--nodes", "1"], "Invalid value for '--nodes'"),
        (["--segment-size", "1"], "segment_size"),
    ],
)
def test_what_is_asked_for_must_make_sense(
    parley: Parley,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = parley("simulate", "--journals", "j", *options)
    assert done.code == 2
    assert sentence in done.err


def test_answers_are_named_for_people_and_have_codes_for_programs() -> None:
    tally = Tally(calls=Counter({("a", "1"): 2, ("b", "1"): 1, ("a", "64"): 3, ("a", "late"): 4}))
    assert tally.outcomes() == {"1": 3, "64": 3, "late": 4}
    assert named_outcomes(tally.outcomes()) == {"topic-not-found": 3, "code 64": 3, "late": 4}
