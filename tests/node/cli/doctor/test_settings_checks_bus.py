"""`parley doctor`: findings about the rights, the file and the Redis server of a bus."""

from pathlib import Path

import pytest

from parley._crypto.identity import Identity
from parley._node.cli.doctor.settings_checks import check_bus, check_store
from tests.node.cli.conftest import Parley
from tests.sweep import sweep

ID = Identity.create().node_id


def levels(monkeypatch: pytest.MonkeyPatch, **environ: str) -> dict[str, str]:
    for name, value in environ.items():
        monkeypatch.setenv(f"PARLEY_{name}", value)
    return {finding.subject: str(finding.level) for finding in check_bus(None)}


def test_no_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(monkeypatch) == {}
    assert levels(monkeypatch, BUS_ALLOW="*=publish:*") == {"bus": "problem"}
    assert levels(monkeypatch, NODE_ROLE="nobody") == {}


@pytest.mark.parametrize(
    ("entry", "strangers", "others"),
    [
        ("*=manage:*", "problem", "weak"),
        ("*=inspect+manage:shop.*", "problem", "weak"),
        ("*=publish:*", "weak", "note"),
        ("*=consume+publish:*:g", "weak", "note"),
        ("*=inspect:*", "weak", "note"),
    ],
)
def test_rights_of_anybody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: str, strangers: str, others: str
) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    found = levels(monkeypatch, BUS_URL=url, BUS_ALLOW=entry)
    assert found.pop(f"bus {url}") == "ok"
    ((subject, level),) = found.items()
    assert subject.startswith("bus rights *=")
    assert level == strangers
    found = levels(monkeypatch, SERVE_TRUST="known")
    assert found[subject] == others


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [
        ("publish", "any unknown node can publish"),
        (
            "consume+publish",
            "any unknown node can consume and publish, which takes events from their intended "
            "readers",
        ),
        ("inspect+publish", "any unknown node can inspect and publish"),
    ],
)
def test_the_sentence_on_rights_of_anybody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, actions: str, sentence: str
) -> None:
    monkeypatch.setenv("PARLEY_BUS_URL", f"sqlite:///{tmp_path}/bus.db")
    monkeypatch.setenv("PARLEY_BUS_ALLOW", f"*={actions}:*")
    (text,) = (one.text for one in check_bus(None) if one.subject.startswith("bus rights"))
    assert text == sentence


def test_rights_of_nodes_and_of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    assert levels(monkeypatch, BUS_URL=url)["bus rights"] == "note"
    assert levels(monkeypatch, BUS_ALLOW=f"{ID}=manage:*")["bus rights"] == "ok"


@pytest.mark.parametrize(
    ("mode", "level"), [(0o600, "ok"), (0o640, "weak"), (0o644, "weak"), (0o620, "problem")]
)
def test_who_can_read_the_file(tmp_path: Path, mode: int, level: str) -> None:
    file = tmp_path / "bus.db"
    file.touch()
    file.chmod(mode)
    beside = tmp_path / "bus.db-wal"
    beside.touch(0o600)
    beside.chmod(0o600)
    found = list(check_store(f"sqlite:///{file}?service=shop"))
    assert [str(finding.level) for finding in found] == [level, "ok"]
    assert str(file) in found[0].text


def test_a_file_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bus.db").touch(0o600)
    monkeypatch.setattr("os.geteuid", lambda: 1)
    (found,) = check_store(f"sqlite:///{tmp_path}/bus.db")
    assert str(found.level) == "problem"


@sweep(
    ("url", "expected"),
    [
        ("redis://127.0.0.1/0", ["note"]),
        ("redis://user:secret@127.0.0.1:1/0", ["ok"]),
        ("redis://[::1]:1/0", ["note"]),
        ("redis://192.0.2.1/0", ["weak", "problem"]),
        ("redis://user:secret@redis.example/0", ["weak"]),
        ("rediss://redis.example/0", ["problem"]),
        ("rediss://user:secret@redis.example/0?service=shop", ["ok"]),
        ("redis+unix:///run/redis.sock", ["note"]),
        ("redis:///0", ["note"]),
        ("redis://localhost:1/0", ["note"]),
        ("redis://127.0.0.1:x/0", ["problem"]),
        ("http://example.org/", ["problem"]),
        ("bus.db", ["problem"]),
    ],
)
def test_other_stores(url: str, expected: list[str]) -> None:
    found = list(check_store(url))
    assert [str(finding.level) for finding in found] == expected
    assert "secret" not in repr(found)
    assert all(finding.mend for finding in found if str(finding.level) != "ok")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://bus.db",
        "sqlite:///bus.db?colour=red",
        "sqlite:///bus.db?max_age=x",
        "sqlite:////dev/null/bus.db",
        "sqlite:///bus%00.db",
        "redis://127.0.0.1/x",
        "redis://user:se/cret@127.0.0.1/0",
        "redis://127.0.0.1/0?format=other",
        "unix:///run/node.sock",
        "tcp://127.0.0.1:1",
        "http://[",
    ],
)
def test_what_serve_refuses_is_a_problem(parley: Parley, url: str) -> None:
    refused = parley("serve", "--listen", "tcp://127.0.0.1:0", "--bus", url, "--json")
    assert (refused.code, refused.out[:1]) == (2, "{")
    (found,) = check_store(url)
    assert str(found.level) == "problem"
    assert found.text == f"{refused.last['text']}: parley serve will not start"
    assert "se" not in refused.last["text"].split(":")[0].split()


@pytest.mark.parametrize("content", [b"a diary, and no database\n" * 200, None])
def test_what_is_no_bus_is_a_problem_and_stays_as_it_is(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "bus.db"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    (found,) = check_store(f"sqlite:///{file}")
    assert str(found.level) == "problem"
    assert found.text.startswith(f"cannot open the bus '{file}': it is not a ")
    assert [*tmp_path.iterdir()] == [file]
    assert content is None or file.read_bytes() == content


@pytest.mark.process
def test_the_doctor_says_it(parley: Parley, tmp_path: Path) -> None:
    done = parley("doctor", "--json", "--bus", f"sqlite:///{tmp_path}/bus.db")
    found = {line["subject"]: line["level"] for line in done.lines if line["event"] == "finding"}
    assert (done.code, found[f"bus sqlite:///{tmp_path}/bus.db"]) == (0, "ok")
    assert parley("doctor", "--bus", "rediss://192.0.2.1/0").code == 1


@pytest.mark.parametrize("url", ["rediss//:hunter2@h", "me:hunter2@h", "redis:/:hunter2@h/0"])
def test_of_what_is_no_address_nothing_is_shown(url: str) -> None:
    (finding,) = check_store(url)
    assert "hunter2" not in finding.subject + finding.text
