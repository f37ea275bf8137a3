"""Run each example as a reader would, and check its output.

An example without an entry in `PRINTS` fails a test, so that every example is run.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.redis_server import PROGRAM, redis_program
from tests.sweep import sweep

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[1] / "examples"
# The whole output of each example, as a regular expression.
PRINTS = {
    "01_echo.py": r"hello\n",
    "02_file.py": r"02_file\.py: \d+ bytes, sha256 equal\n",
    "03_calls.py": (
        r"order tea: a cup of tea\n"
        r"order cake: refused with code 64 and {'left': \['tea'\]}\n"
        r"wait: timed out, and the handler was cancelled\n"
        r"menu: tea\nmenu: cake\nmenu: water\n"
        r"bake: 6 calls, 2 at a time\n"
        r"keeper calls till\.today: 12\.50\n"
        r"guest calls till\.today: not authorised \(code 20, not-authorised\)\n"
    ),
    "04_topics.py": (
        r"alice subscribes to v1: rejected, only v2 is supported\n"
        r"alice: subscribed, initial data {'price': 0}\n"
        r"bob: subscribed, initial data {'price': 0}\n"
        r"publisher: 3 subscribers\n"
        # Three tasks, in any order.
        r"(?:(?:alice|bob): 1000 notes, the last is 1000\n"
        r"|carol: 1000 notes in \d+ batches\n){3}"
        r"publisher: dropped (?P<dropped>[1-9]\d*) of 1000 notes\n"
        r"slow: (?P<read>[1-9]\d*) notes read and (?P<lost>\d+) lost, the last is 1000\n"
    ),
    "05_streams.py": (
        r"bytes: HELLO, IS IT WARM\?\n"
        r"request 21: answered with {'target': 21}\n"
        r"request 19: answered with {'target': 19}\n"
        r"event: the temperature is 21\n"
        r"event: the temperature is 19\n"
        r"reset: code 64, the sensor is out of order\n"
        r"still connected: True\n"
    ),
    "06_trust_and_keys.py": (
        r"key file: cannot decrypt the key file \S+: the passphrase is wrong, "
        r"or the file was altered\n"
        r"key file: the same node ID: True\n"
        r"pinned: connected to bob: True\n"
        r"pinned: agreed on new keys, rekey number 1\n"
        r"pinned: eve was rejected\n"
        r"first use: recorded only bob: True\n"
        r"first use: another node was detected: True\n"
        r"hook: alice was accepted: True\n"
        r"hook: eve was rejected: authentication failed \(authentication-failed\)\n"
        r"network key: members can connect: True\n"
        r"network key: eve gets no answer: the other side closed the connection during the "
        r"handshake\n"
    ),
    "07_chat.py": (
        r"present: \[\]\n"
        r"\[verified\] alice has entered\n"
        r"\[verified\] bob has entered\n"
        r"\[verified\] bob: good evening\n"
        r"mallory was rejected: the name bob is taken\n"
        r"\[verified\] bob has left\n"
        r"\[NOT VERIFIED, (\w{8})\] bob has entered\n"
        r"\[NOT VERIFIED, \1\] bob: send me your key, alice\n"
        r"\[NOT VERIFIED, \1\] bob has left\n"
        r"\[verified\] alice: you are not bob\n"
    ),
    "08_in_an_app.py": (
        r"GET /price/tea: 200 {'item': 'tea', 'price': 2}\n"
        r"GET /price/gold: 404 {'error': 'not sold here'}\n"
        r"GET /prices: 200\n"
        r'data: {"tea": 2}\ndata: {"tea": 2}\n'
        r"the shop has no peers left: True\n"
    ),
    "09_named_events.py": "".join(
        rf"{who}: pong, are you there\?\n"
        rf"{who}: {{'moves': {number}}}\n"
        rf"{who}: refused with code 64, not so early\n"
        rf"{who}: \[3, 2, 1\]\n"
        rf"{who}: b'\\x89PNG'\n"
        rf"{who}: \['from the node', 'thanks'\]\n" + ignored
        for number, who, ignored in (
            (1, "native", ""),
            (2, "plain", r"plain: 1 event without a handler\n"),
            (3, "typed", r"typed: 1 event without a handler\n"),
        )
    ),
    "10_simproto_gateway.py": (
        r"answer: b'the shop is open'\n"
        r"note: b'{\"tea\":2}'\n"
        r"note: b'{\"tea\":3}'\n"
        r"note: b'{\"tea\":5}'\n"
    ),
    "11_event_relay.py": (
        r"direct: 21 degrees, from the sensor: True\n"
        r"broadcast: from an old program\n"
        r"broadcast: from an old program\n"
        r"error from the relay: code 5, target UUID not connected: 0{8}-0{4}-0{4}-0{4}-0{10}1d\n"
        r"disconnected because they did not read: 1\n"
    ),
    "12_bridge.py": (
        r"native: b'it rains'\n"
        r"  from the sensor: True\n"
        r"SimProto: b'it rains'\n"
        r"relay: b'the sun is out'\n"
        r"  from the node: True\n"
        r"relay, as CBOR: a1676465677265657315\n"
    ),
    "13_journal_and_audit.py": (
        r"with the auditor's key: 3 calls of \['order'\]\n"
        r"  all events ok: True; findings: none\n"
        r"without it: 0 calls of \[\]\n"
        r"  all events ok: True; findings: none\n"
        r"after one bit was altered: \d calls of \['order'\]\n"
        r"  all events ok: False; findings: \['bad-chain at place \d+'\]\n"
    ),
    "14_durable_bus.py": (
        r"published twice, stored once: True\n"
        r"audit: alice\naudit: bob\naudit: carol\n"
        r"audit: unread events: 0\n"
        r"dead letter: {'username': 'carol'} after 2 attempts\n"
        r"  error: LookupError: no mailbox for carol\n"
        r"replayed: 1\n"
        r"mailed to alice in attempt 2\n"
        r"mailed to bob in attempt 1\n"
        r"mailed to carol in attempt 1\n"
    ),
    "15_lightbus_interop.py": (
        r"fired by Lightbus, handled by the node: {'username': 'ada'}\n"
        r"published by the node: {'api_name': 'auth', 'event_name': 'user_registered', "
        r"'version': '1', ':username': '\"admin\"'}\n"
        r"taken over from Lightbus: {'username': 'grace'}, attempt 2\n"
    ),
    "16_link_over_restarts.py": (
        r"not connected yet\n"
        r"  up\n  the shop makes tea\ntea: one tea\n"
        r"price: 300\n"
        r"the session ends while the shop bakes\n"
        # Printed once, although the call is sent over both sessions.
        r"  the shop makes a cake\n  down: closed \(normal\)\n  up\na cake: one a cake\n"
        r"price: 310, without gaps: True\n"
        r"the server restarts while the shop bakes\n"
        r"  the shop makes a pie\n  down: the node is going away \(going-away\)\n  up\n"
        r"a pie: outcome unknown, made once or not at all\n"
        r"price: 400, without gaps: False\n"
        r"  the shop makes tea\ntea: one tea\n"
        r"sessions: 3\n"
    ),
    "18_three_servers.py": (
        r"ben: called by ann, path west -> middle -> east -> ben\n"
        r"ann: 'tea' costs 3\n"
        r"ann calls a name that is not exported: not authorised \(code 20, not-authorised\)\n"
    ),
    "19_room_across_servers.py": (
        r"lines: 9\n"
        r"same order for everyone: True\n"
        r"lines of ann: ann 0, ann 1, ann 2\n"
        r"lines of ben: ben 0, ben 1, ben 2\n"
        r"lines of cas: cas 0, cas 1, cas 2\n"
    ),
    "20_interceptors.py": (
        r"call in 'make', request order-1: answered 'a cup of tea'\n"
        r"call in 'order', request order-1: answered 'a cup of tea'\n"
        r"initial state: {'tea': 4}\n"
        r"call in 'make', request order-2: answered 'a cup of tea'\n"
        r"call in 'order', request order-2: answered 'a cup of tea'\n"
        r"change: {'tea': 3}\n"
        r"call in 'order', request order-3: refused\n"
        r"the guest was refused: come again tomorrow\n"
    ),
    "17_typed_calls.py": (
        r"menu: tea, cake\n"
        r"order: table 7 pays 7\.20\n"
        r"refused with code 23: \$\.items\[1\]\.cents: Expected int, got str\n"
        r"refused with code 23: \$\.items\[0\]\.cents: Expected int >= 1\n"
        r"refused with code 23: \$: Expected object, got null\n"
        r"invalid answer of the shop: code 16\n"
        r"unexpected answer: \$: Object missing required field name\n"
        r"not published: not of type Item: \$\.cents: Expected int >= 1\n"
        r"note: Item\(name='tea', cents=310\)\n"
    ),
}
# The examples that start a redis-server.
ON_REDIS = ("15_lightbus_interop.py",)
# The maximum duration of an example in seconds, on a busy machine.
PATIENCE = 30
# Runs an example as a reader would, except that `anyio.run` uses the given backend.
_ON_BACKEND = """
import functools, runpy, sys
import anyio
backend, sys.argv = sys.argv[1], sys.argv[2:]
anyio.run = functools.partial(anyio.run, backend=backend)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _run(name: str, directory: Path, *args: str, backend: str = "asyncio") -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _ON_BACKEND, backend, str(EXAMPLES / name), *args],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _runnable(name: str) -> object:
    """Return the parameter for an example, which is skipped if it needs a missing redis-server."""
    if name not in ON_REDIS:
        return name
    missing = pytest.mark.skipif(redis_program() is None, reason=f"{PROGRAM} is not installed")
    return pytest.param(name, marks=[pytest.mark.redis, missing])


def test_every_example_has_an_entry() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(PRINTS)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", [_runnable(name) for name in sorted(PRINTS)])
def test_example_prints_the_expected_output(name: str, backend: str, tmp_path: Path) -> None:
    printed = _run(name, tmp_path, backend=backend)
    found = re.fullmatch(PRINTS[name], printed)
    assert found, printed
    # Both sides report the same number of lost notes, and all other notes were read.
    counts = {group: int(count) for group, count in found.groupdict().items()}
    if counts:
        assert counts["dropped"] == counts["lost"] == 1_000 - counts["read"]
    assert list(tmp_path.iterdir()) == []  # it deletes its files


@sweep("name", sorted(PRINTS))
def test_example_explains_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert f"python examples/{name}" in text.split('"""')[1]


def test_file_example_sends_a_given_file(tmp_path: Path) -> None:
    file = tmp_path / "own"
    file.write_bytes(bytes(range(256)) * 4000)
    assert _run("02_file.py", tmp_path, str(file)) == "own: 1024000 bytes, sha256 equal\n"


def test_file_example_sends_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    assert _run("02_file.py", tmp_path, str(file)) == "empty: 0 bytes, sha256 equal\n"
