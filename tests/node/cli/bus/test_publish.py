"""`parley bus publish`: one event, and one for each line."""

import json
from pathlib import Path

import pytest

from parley._node.bus.identifiers import parse_id
from tests.node.cli.conftest import NAME, Parley, said


def stored(parley: Parley, bus: str) -> list[object]:
    return [line["data"] for line in said(parley("bus", "tail", bus, NAME, "--json"), "event")]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_an_event(parley: Parley, bus: str, loop: str) -> None:
    done = parley("bus", "publish", bus, NAME, '{"to": "ada", "n": 1.5}', "--loop", loop)
    assert (done.code, done.err) == (0, "")
    parse_id(done.out.strip())
    as_json = parley("bus", "publish", bus, NAME, "--json", "--no-durable", "--loop", loop)
    (published,) = said(as_json, "published")
    assert parse_id(published["id"]) > parse_id(done.out.strip())
    assert as_json.last == {"event": "done", "count": 1}
    assert stored(parley, bus) == [{"to": "ada", "n": 1.5}, {}]


def test_fields(parley: Parley, bus: str) -> None:
    fields = ["to=ada", "n=1", 'text="2"', "list=[1]", "empty=", "equation=a=b"]
    args = [part for field in fields for part in ("--field", field)]
    assert parley("bus", "publish", bus, NAME, *args).code == 0
    assert stored(parley, bus) == [
        {"to": "ada", "n": 1, "text": "2", "list": [1], "empty": "", "equation": "a=b"}
    ]


def test_a_key_makes_two_of_them_one(parley: Parley, bus: str) -> None:
    args = ("bus", "publish", bus, NAME, "{}", "--key", "order-17")
    assert parley(*args).out == parley(*args).out
    assert stored(parley, bus) == [{}]


def test_lines(parley: Parley, bus: str) -> None:
    events = [{"n": number, "text": "ä" * 100} for number in range(2_000)]
    data = "\n\n".join(map(json.dumps, events)).encode()
    done = parley("bus", "publish", bus, NAME, "--json-lines", "--json", data=data)
    assert done.code == 0
    ids = [parse_id(line["id"]) for line in said(done, "published")]
    assert ids == sorted(set(ids))
    assert done.last == {"event": "done", "count": 2_000}
    assert stored(parley, bus) == events


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{", "cannot publish line 3: not JSON"),
        (b"[1]", "cannot publish line 3: not a JSON object"),
        (b'{"n": NaN}', "cannot publish line 3: the data is not JSON"),
        (
            b'{"n": "' + b"x" * 2**20 + b'"}',
            "cannot read line 3: it is longer than 1,048,576 bytes",
        ),
    ],
)
def test_what_came_before_a_bad_line_is_published(
    parley: Parley, bus: str, line: bytes, sentence: str
) -> None:
    data = b'{"n": 1}\n\n' + line + b'\n{"n": 2}\n'
    done = parley("bus", "publish", bus, NAME, "--json-lines", "--json", data=data)
    assert (done.code, done.last["name"]) == (6, "file")
    assert done.last["text"].startswith(sentence)
    assert len(said(done, "published")) == 1
    assert stored(parley, bus) == [{"n": 1}]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ((NAME, "{"), "invalid data: not JSON"),
        ((NAME, "[]"), "invalid data: not a JSON object"),
        ((NAME, '{"n": NaN}'), "the data is not JSON"),
        ((NAME, "{}", "--field", "a=1"), "cannot use DATA with --field: give the data in one way"),
        ((NAME, "--json-lines", "--field", "a=1"), "cannot use --field with --json-lines"),
        ((NAME, "--json-lines", "--key", "k"), "cannot use --key 'k' with --json-lines"),
        ((NAME, "--field", "a"), "invalid --field 'a': expected NAME=VALUE"),
        ((NAME, "--field", "=a"), "invalid --field '=a': expected NAME=VALUE"),
        ((NAME, "--key", "a b"), "invalid idempotency key 'a b'"),
        (("ordered",), "invalid event name 'ordered'"),
    ],
)
def test_what_is_not_published(
    parley: Parley, bus: str, args: tuple[str, ...], sentence: str
) -> None:
    done = parley("bus", "publish", bus, *args)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("bus.db", "invalid bus address 'bus.db'"),
        ("auth.registered", "invalid bus address 'auth.registered'"),
        ("reddis://user:secret@127.0.0.1/0", "invalid bus address 'reddis'"),
        ("sqlite://bus.db", "three slashes"),
        ("sqlite:///bus.db?colour=red", "unknown setting 'colour'"),
        ("tcp://127.0.0.1", "port"),
    ],
)
def test_what_is_no_bus(
    parley: Parley,
    address: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = parley("bus", "publish", address, NAME)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert "secret" not in done.err
    assert not (tmp_path / "bus.db").exists()


def test_nobody_answers(parley: Parley) -> None:
    done = parley("bus", "publish", "tcp://127.0.0.1:1", NAME, "--trust", "any", "--json")
    assert (done.code, done.last["name"]) == (3, "unreachable")


def test_a_file_that_is_no_bus(parley: Parley, bus: str, tmp_path: Path) -> None:
    (tmp_path / "bus.db").write_bytes(b"a diary, and no database at all\n" * 200)
    done = parley("bus", "publish", bus, NAME, "--json")
    assert (done.code, done.last["name"]) == (6, "file")
    assert (tmp_path / "bus.db").read_bytes().startswith(b"a diary")
