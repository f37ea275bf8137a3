"""`parley call` against a real server in this process, and with unreachable addresses."""

import json
from pathlib import Path

import pytest

from parley._node.cli.call import write_raw
from tests.node.cli.conftest import Parley
from tests.node.cli.serve_topics import HOSTILE
from tests.sweep import sweep

ELSEWHERE = "tcp://127.0.0.1:1"


@sweep(
    ("data", "answer"),
    [
        (["hello"], "hello\n"),
        ([""], "\n"),
        ([], "null\n"),
        (["two\nlines"], "two\nlines\n"),
        (["日本 ✓"], "日本 ✓\n"),
        (["--", "-5"], "-5\n"),
        (["--", "--json"], "--json\n"),
        (["--data-json", "null"], "null\n"),
        (["--data-json", '"text"'], "text\n"),
        (["--data-json", "-0.0"], "-0.0\n"),
        (["--data-json", "18446744073709551615"], "18446744073709551615\n"),
        (["--data-json", '{"a": [1, 2.5, null, true, {"b": ""}]}'], None),
        (["--data-json", "[NaN, Infinity, -Infinity]"], '["nan", "inf", "-inf"]\n'),
    ],
)
def test_echo(parley: Parley, server: str, data: list[str], answer: str | None) -> None:
    done = parley("call", server, "parley.echo", *data)
    assert (done.code, done.err) == (0, "")
    if answer is None:
        assert json.loads(done.out) == json.loads(data[-1])
    else:
        assert done.out == answer


@pytest.mark.parametrize(
    ("data", "answer"),
    [(b"", ""), (b"plain\n", "plain\n"), (b"caf\xc3\xa9", "café"), (b"\xff\x00-", "ff002d")],
)
def test_bytes_from_standard_input(parley: Parley, server: str, data: bytes, answer: str) -> None:
    done = parley("call", server, "parley.echo", "-", data=data)
    assert (done.code, done.out) == (0, answer + "\n")


def test_a_megabyte_less_a_little_passes(parley: Parley, server: str) -> None:
    done = parley("call", server, "parley.echo", "-", data=b"x" * 1_048_500)
    assert done.code == 0
    assert done.out == "x" * 1_048_500 + "\n"


def test_a_payload_too_large_is_refused_here(parley: Parley, server: str) -> None:
    done = parley("call", server, "parley.echo", "-", data=b"x" * 2**20)
    assert (done.code, done.out) == (1, "")
    assert "1048576" in done.err
    assert done.err.count("\n") == 1
    own = parley("call", server, "parley.echo", "x" * 1024, "--max-payload", "1024", "--json")
    assert (own.code, own.last["event"]) == (1, "error")
    assert "1024" in own.last["text"]


def test_a_refusal_s_data_is_printed_whole(parley: Parley, server: str) -> None:
    done = parley("call", server, "test.refuse", "x" * 2_000)
    whole, sentence = done.err.splitlines()
    assert (done.code, done.out, whole) == (5, "", "x" * 2_000)
    assert sentence.startswith("parley: refused (code 64): xxx")


@pytest.mark.parametrize("data", [b"", b"\x00\xff\n", b"two\nlines"])
def test_raw_bytes_of_an_answer(data: bytes, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_raw(data)
    assert capfdbinary.readouterr().out == data


def test_raw_text_and_values(parley: Parley, server: str) -> None:
    assert parley("call", server, "parley.echo", "caf\u00e9", "--raw").out == "caf\u00e9"
    assert parley("call", server, "parley.echo", "-", "--raw", data=b"\xc3\xa9").out == "é"
    assert parley("call", server, "parley.echo", "--raw", "--data-json", "[1]").out == "[1]"
    assert parley("call", server, "parley.echo", "--raw", "--json").code == 2


def test_json_of_a_call(parley: Parley, server: str) -> None:
    done = parley("call", server, "parley.echo", "hello", "--json")
    connected, last = done.lines
    assert connected["event"] == "connected"
    assert connected["node_id"] == server.partition("#")[2]
    assert connected["encrypted"] is True
    assert sorted(connected["suite"]) == ["cipher", "hash", "kex", "sealing", "signing"]
    assert (last["event"], last["code"], last["data"]) == ("done", 0, "hello")
    assert 0 < last["seconds"] < 10
    assert done.err == ""


def test_nested_bytes_and_numbers_are_json(parley: Parley, server: str) -> None:
    expected = {
        "text": ["café", "ff00"],
        "deep": {"map": {"bytes": "80"}, "numbers": {"1": "nan", "2": "-inf"}},
    }
    assert parley("call", server, "test.nested", "--json").last["data"] == expected
    assert json.loads(parley("call", server, "test.nested").out) == expected


def test_a_hostile_answer_is_printed_as_it_is_to_a_file(parley: Parley, server: str) -> None:
    assert parley("call", server, "test.hostile").out == HOSTILE + "\n"
    assert parley("call", server, "test.hostile", "--json").last["data"] == HOSTILE


def test_an_answer_with_another_code(parley: Parley, server: str) -> None:
    done = parley("call", server, "test.refuse", "not\ttoday\n\x1b[2J")
    assert done == (5, "", "parley: refused (code 64): not\\ttoday\\n\\x1b[2J\n")
    done = parley("call", server, "test.refuse", "--data-json", '{"why": 7}')
    assert done == (5, "", 'parley: refused (code 64): {"why": 7}\n')
    last = parley("call", server, "test.refuse", "--data-json", '{"why": 7}', "--json").last
    assert (last["event"], last["code"], last["exit"]) == ("error", 64, 5)
    assert last["data"] == {"why": 7}


def test_a_handler_that_failed_tells_nothing_of_it(parley: Parley, server: str) -> None:
    done = parley("call", server, "test.fail")
    assert done == (5, "", "parley: the handler failed (code 16, handler-failed)\n")


@pytest.mark.parametrize("topic", ["nope", "", "parley.ech", "parley.echo "])
def test_an_unknown_topic(parley: Parley, server: str, topic: str) -> None:
    done = parley("call", server, topic)
    assert done == (5, "", "parley: topic not found (code 1, topic-not-found)\n")


def test_a_deadline_that_passes(parley: Parley, server: str) -> None:
    last = parley("call", server, "test.wait", "30", "--timeout", "0.1", "--json").last
    assert (last["code"], last["exit"], last["name"]) == (17, 5, "the-deadline-passed")


@pytest.mark.parametrize("timeout", ["inf", "1e300"])
def test_a_timeout_without_end(parley: Parley, server: str, timeout: str) -> None:
    assert parley("call", server, "parley.echo", "x", "--timeout", timeout).out == "x\n"


@sweep(
    ("arguments", "sentence"),
    [
        (["x", "--timeout", "0"], "cannot use --timeout 0: "),
        (["x", "--timeout", "-1"], "cannot use --timeout -1: "),
        (["x", "--timeout", "nan"], "Invalid value for '--timeout'"),
        (["x", "--data-json", "1"], "cannot use DATA with --data-json"),
        (["--data-json", "{"], "invalid --data-json: not JSON: "),
        (["--data-json", ""], "invalid --data-json: not JSON: "),
        (["--data-json", "[" * 100_000], "invalid --data-json: nested too deeply"),
        (["--data-json", "[" * 20 + "]" * 20], "cannot encode more than 16 levels"),
        (["--data-json", "1" + "0" * 30], "cannot encode an integer or a size of 100 bits"),
        (["--data-json", "1" * 5000], "invalid --data-json: not JSON: "),
        (["--data-json", '"\\ud800"'], "cannot encode text with a lone surrogate"),
        (["\udcff"], "cannot encode text with a lone surrogate"),  # an argument that is not UTF-8
    ],
)
def test_data_that_cannot_be_sent(
    parley: Parley, server: str, arguments: list[str], sentence: str
) -> None:
    done = parley("call", server, "parley.echo", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"parley: {sentence}")
    assert done.err.count("\n") == 1


@sweep(
    ("address", "code", "sentence"),
    [
        ("", 2, "cannot use the address"),
        ("127.0.0.1:1", 2, "cannot use the address"),
        ("http://127.0.0.1:1", 2, "cannot use the address"),
        ("tcp://127.0.0.1", 2, "cannot use the address 'tcp://127.0.0.1': the port is missing"),
        (
            "tcp://127.0.0.1:99999",
            2,
            "cannot use the address 'tcp://127.0.0.1:99999': the port is 99999",
        ),
        (
            "tcp://::1:4000",
            2,
            "cannot use the address 'tcp://::1:4000': an IPv6 address must be in brackets",
        ),
        (
            f"{ELSEWHERE}#short",
            2,
            f"cannot use the address '{ELSEWHERE}#short': invalid node ID 'short' after '#'",
        ),
        (
            "unix://relative",
            2,
            "cannot use the address 'unix://relative': the path 'relative' is not absolute",
        ),
        (ELSEWHERE, 3, f"cannot reach {ELSEWHERE}: nothing is listening there"),
        ("tcp://name.invalid:1", 3, "cannot reach tcp://name.invalid:1: "),
        (
            "unix:///proc/nonexistent/socket",
            3,
            "cannot reach unix:///proc/nonexistent/socket: there is no",
        ),
    ],
)
@sweep("command", [["call", "parley.echo"], ["ping"]])
def test_an_address_where_nobody_is(
    parley: Parley, command: list[str], address: str, code: int, sentence: str
) -> None:
    arguments = [command[0], address, *command[1:]]
    done = parley(*arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"parley: {sentence}")
    assert done.err.count("\n") == 1
    last = parley(*arguments, "--json").last
    assert (last["event"], last["code"]) == ("error", code)


def test_the_preferred_names_are_taken(parley: Parley, server: str) -> None:
    wanted = {"kex": "x25519", "hash": "sha512", "cipher": "xchacha20-poly1305", "sealing": "each"}
    options = [word for name, value in wanted.items() for word in (f"--{name}", value)]
    done = parley("call", server, "parley.info", *options)
    assert json.loads(done.out)["suite"] == {**wanted, "signing": "ed25519"}


def test_info_says_who_asked(parley: Parley, server: str, tmp_path: Path) -> None:
    path = str(tmp_path / "key")
    node_id = parley("id", "new", path, "--json").last["node_id"]
    info = parley("call", server, "parley.info", "--identity", path, "--json").last["data"]
    assert info["caller"] == node_id
    assert info["node_id"] == server.partition("#")[2]
    assert info["role"] == "peer"
    assert info["encrypted"] is True


def test_nothing_in_common(parley: Parley, server: str) -> None:
    done = parley("call", server, "parley.echo", "--signing", "ml-dsa-65", "--fresh")
    assert done == (1, "", "parley: no common algorithm: signing (no-common-algorithm)\n")


def test_a_wrong_pin_is_not_trusted(parley: Parley, server: str, tmp_path: Path) -> None:
    other = parley("id", "new", str(tmp_path / "key"), "--json").last["node_id"]
    place = server.partition("#")[0]
    for trust in ([], ["--trust", "any"]):  # the address has the last word
        done = parley("call", f"{place}#{other}", "parley.echo", "x", *trust)
        assert (done.code, done.out) == (4, "")
        assert other in done.err
        assert "refused" in done.err


def test_first_use_records_and_known_reads(parley: Parley, server: str, tmp_path: Path) -> None:
    place, _, node_id = server.partition("#")
    file = tmp_path / "home" / "known_peers"
    done = parley("call", place, "parley.echo", "x", "--trust", "known")
    assert done.code == 4
    assert "it is not in" in done.err
    assert not file.exists()
    assert parley("call", place, "parley.echo", "x", "--trust", "first-use").code == 0
    line = file.read_text()
    assert line.startswith(node_id)
    assert line.endswith(f" {place}\n")
    assert parley("call", place, "parley.echo", "x", "--trust", "known").code == 0
    assert parley("call", place, "parley.echo", "x", "--trust", str(file)).code == 0
    assert parley("call", server, "parley.echo", "x").code == 0
    assert file.read_text() == line


def test_a_pinned_call_records_nobody(parley: Parley, server: str, tmp_path: Path) -> None:
    assert parley("call", server, "parley.echo", "x").code == 0
    assert not (tmp_path / "home" / "known_peers").exists()


def test_plaintext_is_refused_where_it_is_not_spoken(parley: Parley, server: str) -> None:
    place = server.partition("#")[0]
    done = parley("call", place, "parley.echo", "secret", "--plaintext")
    assert done == (1, "", "parley: unencrypted connections are refused (plaintext-refused)\n")
    pinned = parley("call", server, "parley.echo", "secret", "--plaintext")
    assert pinned[:2] == (2, "")
    assert "cannot use trust 'pinned' with plaintext='only'" in pinned[2]


@pytest.mark.parametrize("loop", ["--uvloop", "--no-uvloop"])
def test_either_loop(parley: Parley, server: str, loop: str) -> None:
    assert parley("call", server, "parley.echo", "x", loop) == (0, "x\n", "")
