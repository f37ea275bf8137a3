"""Each example runs as its reader would run it, and prints what it promises.

An example without an entry here fails, so that none is left unrun.
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
# What each prints, as a pattern for all of it.
PRINTS = {
    "01_echo.py": r"hello\n",
    "02_file.py": r"02_file\.py: \d+ bytes, sha256 equal\n",
    "03_calls.py": (
        r"order tea: a cup of tea\n"
        r"order cake: refused with code 64 and {'left': \['tea'\]}\n"
        r"wait: too long; the handler was stopped, too\n"
        r"menu: tea\nmenu: cake\nmenu: water\n"
        r"bake: 6 calls, 2 at a time\n"
        r"the keeper asks till\.today: 12\.50\n"
        r"the guest asks till\.today: not authorised \(code 20, not-authorised\)\n"
    ),
    "04_topics.py": (
        r"alice asks for v1: rejected, only v2 is spoken here\n"
        r"alice: subscribed, and told {'price': 0}\n"
        r"bob: subscribed, and told {'price': 0}\n"
        r"publisher: 3 subscribers\n"
        # Three tasks: whichever is first.
        r"(?:(?:alice|bob): 1000 notes, the last one is 1000\n"
        r"|carol: 1000 notes in \d+ batches\n){3}"
        r"publisher: of 1000 notes (?P<dropped>[1-9]\d*) were dropped\n"
        r"slow: (?P<read>[1-9]\d*) notes read and (?P<lost>\d+) lost, the last one is 1000\n"
    ),
    "05_streams.py": (
        r"bytes: HELLO, IS IT WARM\?\n"
        r"request 21: answered with {'target': 21}\n"
        r"request 19: answered with {'target': 19}\n"
        r"event: it has 21 degrees\n"
        r"event: it has 19 degrees\n"
        r"reset: code 64, the sensor is gone\n"
        r"still connected: True\n"
    ),
    "06_trust_and_keys.py": (
        r"key file: wrong passphrase, or the key file \S+ was altered\n"
        r"key file: the same node again: True\n"
        r"pinned: it is bob: True\n"
        r"pinned: fresh keys were agreed on, rekey number 1\n"
        r"pinned: it is not bob\n"
        r"first use: it was bob both times: True\n"
        r"first use: the id has changed: True\n"
        r"hook: alice is in: True\n"
        r"hook: eve is told no more than: authentication failed \(authentication-failed\)\n"
        r"network key: members meet: True\n"
        r"network key: eve is not even answered: the other side hung up during the handshake\n"
    ),
    "07_chat.py": (
        r"already here: \[\]\n"
        r"\[verified\] alice comes in\n"
        r"\[verified\] bob comes in\n"
        r"\[verified\] bob: good evening\n"
        r"mallory is told: there is a bob here\n"
        r"\[verified\] bob has left\n"
        r"\[NOT VERIFIED, (\w{8})\] bob comes in\n"
        r"\[NOT VERIFIED, \1\] bob: lend me your key, alice\n"
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
            (2, "plain", r"plain: 1 event that nobody listens to\n"),
            (3, "typed", r"typed: 1 event that nobody listens to\n"),
        )
    ),
    "10_simproto_gateway.py": (
        r"called: b'the shop is open'\n"
        r"a note: b'{\"tea\":2}'\n"
        r"a note: b'{\"tea\":3}'\n"
        r"a note: b'{\"tea\":5}'\n"
    ),
    "11_event_relay.py": (
        r"direct: 21 degrees, from the sensor: True\n"
        r"broadcast: from a program of old\n"
        r"broadcast: from a program of old\n"
        r"the relay says: code 5, target UUID not connected: 0{8}-0{4}-0{4}-0{4}-0{10}1d\n"
        r"dropped, since they did not read: 1\n"
    ),
    "12_bridge.py": (
        r"native: b'it rains'\n"
        r"  by the sensor: True\n"
        r"SimProto: b'it rains'\n"
        r"relay: b'the sun is out'\n"
        r"  by the node: True\n"
        r"relay, as CBOR: a1676465677265657315\n"
    ),
    "13_journal_and_audit.py": (
        r"the auditor: 3 calls of \['order'\]\n"
        r"  all events ok: True; findings: none\n"
        r"anybody else: 0 calls of \[\]\n"
        r"  all events ok: True; findings: none\n"
        r"after one bit: \d calls of \['order'\]\n"
        r"  all events ok: False; findings: \['bad-chain at place \d+'\]\n"
    ),
    "14_durable_bus.py": (
        r"published twice, stored once: True\n"
        r"audit: alice\naudit: bob\naudit: carol\n"
        r"audit: left to read: 0\n"
        r"set aside: {'username': 'carol'} after 2 attempts\n"
        r"  because: LookupError: no mailbox for carol\n"
        r"replayed: 1\n"
        r"mailed to alice at attempt 2\n"
        r"mailed to bob at attempt 1\n"
        r"mailed to carol at attempt 1\n"
    ),
    "15_lightbus_interop.py": (
        r"fired there, handled here: {'username': 'ada'}\n"
        r"published here, read there: {'api_name': 'auth', 'event_name': 'user_registered', "
        r"'version': '1', ':username': '\"admin\"'}\n"
        r"left there, finished here: {'username': 'grace'}, attempt 2\n"
    ),
    "16_link_over_restarts.py": (
        r"nobody is there yet\n"
        r"  up\n  the shop makes tea\ntea: one tea\n"
        r"price: 300\n"
        r"the session ends while the shop bakes\n"
        # Once, although it is asked for over both sessions.
        r"  the shop makes a cake\n  down: closed \(normal\)\n  up\na cake: one a cake\n"
        r"price: 310, with all that came before it: True\n"
        r"the server restarts while the shop bakes\n"
        r"  the shop makes a pie\n  down: the node is going away \(going-away\)\n  up\n"
        r"a pie: made once or not at all, nobody knows\n"
        r"price: 400, with all that came before it: False\n"
        r"  the shop makes tea\ntea: one tea\n"
        r"sessions: 3\n"
    ),
    "18_three_servers.py": (
        r"ben: ann asks, by west -> middle -> east -> ben\n"
        r"ann: 'tea' costs 3\n"
        r"ann asks for what is not exported: not authorised \(code 20, not-authorised\)\n"
    ),
    "19_room_across_servers.py": (
        r"lines: 9\n"
        r"one order for all: True\n"
        r"what ann wrote, in order: ann 0, ann 1, ann 2\n"
        r"what ben wrote, in order: ben 0, ben 1, ben 2\n"
        r"what cas wrote, in order: cas 0, cas 1, cas 2\n"
    ),
    "20_interceptors.py": (
        r"call in 'make', request order-1: answered 'a cup of tea'\n"
        r"call in 'order', request order-1: answered 'a cup of tea'\n"
        r"the kitchen itself is told {'tea': 4}\n"
        r"call in 'make', request order-2: answered 'a cup of tea'\n"
        r"call in 'order', request order-2: answered 'a cup of tea'\n"
        r"and then {'tea': 3}\n"
        r"call in 'order', request order-3: refused\n"
        r"the guest is told: come again tomorrow\n"
    ),
    "17_typed_calls.py": (
        r"menu: tea, cake\n"
        r"order: table 7 pays 7\.20\n"
        r"refused with code 23: \$\.items\[1\]\.cents: Expected int, got str\n"
        r"refused with code 23: \$\.items\[0\]\.cents: Expected int >= 1\n"
        r"refused with code 23: \$: Expected object, got null\n"
        r"a wrong answer is the shop's own business: code 16\n"
        r"not what the guest expected: \$: Object missing required field name\n"
        r"not published: not of type Item: \$\.cents: Expected int >= 1\n"
        r"note: Item\(name='tea', cents=310\)\n"
    ),
}
# Those that start a redis-server.
ON_REDIS = ("15_lightbus_interop.py",)
# Seconds that an example may take, on a busy machine.
PATIENCE = 30
# Runs an example as its reader would, but for the event loop of `anyio.run`.
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
    """An example, skipped where there is no redis-server and it needs one."""
    if name not in ON_REDIS:
        return name
    missing = pytest.mark.skipif(redis_program() is None, reason=f"there is no {PROGRAM} here")
    return pytest.param(name, marks=[pytest.mark.redis, missing])


def test_every_example_is_run() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(PRINTS)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", [_runnable(name) for name in sorted(PRINTS)])
def test_an_example_prints_what_it_promises(name: str, backend: str, tmp_path: Path) -> None:
    printed = _run(name, tmp_path, backend=backend)
    found = re.fullmatch(PRINTS[name], printed)
    assert found, printed
    # Notes that were lost are the same for both sides, and none is missing besides.
    counts = {group: int(count) for group, count in found.groupdict().items()}
    if counts:
        assert counts["dropped"] == counts["lost"] == 1_000 - counts["read"]
    assert list(tmp_path.iterdir()) == []  # and leaves nothing behind


@sweep("name", sorted(PRINTS))
def test_an_example_says_how_it_is_run(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert f"python examples/{name}" in text.split('"""')[1]


def test_a_file_of_ones_own_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "own"
    file.write_bytes(bytes(range(256)) * 4000)
    assert _run("02_file.py", tmp_path, str(file)) == "own: 1024000 bytes, sha256 equal\n"


def test_an_empty_file_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.touch()
    assert _run("02_file.py", tmp_path, str(file)) == "empty: 0 bytes, sha256 equal\n"
