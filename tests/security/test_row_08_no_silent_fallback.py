"""Row 8. Mistake: a silent fallback to something weaker.

Promise: if the other side supports only names below a node's minimum (`require`), that node refuses
and doesn't try anything weaker, in particular not plaintext. The agreed algorithms are visible in
the API, the log and the CLI of both sides.

Single wrong Hellos, Retries and Replies: tests/handshake. Names that a middle node removes from an
offer: row 6. Minimums given to commands: tests/node/cli/test_first_contact_stories.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from parley import Node
from parley._crypto.registry import NAMES, PARAMETERS
from parley._lbm import keys
from parley._lbm.codec import decode, encode
from parley._node.errors import ConfigError, HandshakeError
from parley._node.protocol.codes import HELLO, REJECT, REPLY, CloseCode
from parley._node.protocol.event import handshake_event, parse_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import ConnectionEnded, HandshakeCompleted, PeerIdentified
from parley._node.testing import connect_nodes
from parley._node.trust.policies import AnyPeer
from tests.interop.meeting import logged
from tests.node.cli import conftest as cli
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes
from tests.node.network import config as node_config
from tests.node.network import eventually
from tests.node.protocol.pair import ALICE, BOB, Pair, events_of, make_config
from tests.security.shapes import identity

# The fixtures of the command line's own tests.
processes, parley, own_logging = cli.processes, cli.parley, cli.own_logging

WHO: Final = ("initiator", "responder")
each_parameter = pytest.mark.parametrize("parameter", PARAMETERS)


def floor(parameter: str) -> dict[str, frozenset[str]]:
    """Require the best name of a parameter."""
    return {parameter: frozenset(NAMES[parameter][:1])}


FLOORS: Final = [
    pytest.param(parameter, frozenset(names[:count]), id=f"{parameter}-{count}")
    for parameter, names in NAMES.items()
    for count in range(1, len(names))
]
each_floor = pytest.mark.parametrize(("parameter", "enough"), FLOORS)


def make_pair(
    a: Mapping[str, Any] | None = None, b: Mapping[str, Any] | None = None, **both: Any
) -> Pair:
    """Return two cores that support everything, except as given."""
    settings: dict[str, Any] = {"algorithms": NAMES, **both}
    return Pair(
        make_config(ALICE, **{**settings, **(a or {})}),
        make_config(BOB, **{**settings, **(b or {})}),
    )


def chosen(reply: bytes, parameter: str, name: str) -> bytes:
    """Return a Reply that chooses another name."""
    event = parse_raw(reply)
    cells: dict[int, Any] = dict(decode(event.payload, keep_noise=True))
    suite = {**cells[keys.SUITE], PARAMETERS.index(parameter) + 1: name}
    return handshake_event(REPLY, encode({**cells, keys.SUITE: suite}))


def assert_nothing_was_agreed(pair: Pair) -> None:
    """Check that neither side opened or identified the other, and that neither tried again."""
    for side in pair.sides:
        assert not side.all(HandshakeCompleted)
        assert not side.all(PeerIdentified)
        assert side.all(ConnectionEnded)
    hellos = [parse_raw(event) for event in events_of(pair.a.wire)]
    assert [event.subcategory for event in hellos] == [HELLO]


def assert_rejected(pair: Pair, parameter: str) -> None:
    """Check that both sides know which parameter has no common name."""
    (reject,) = map(parse_raw, events_of(pair.b.wire))
    assert reject.subcategory == REJECT
    for side in pair.sides:
        (ended,) = side.all(ConnectionEnded)
        assert ended.code == CloseCode.NO_COMMON_ALGORITHM
        assert parameter in ended.text + ended.reason
    assert_nothing_was_agreed(pair)


# Minimums.


@each_floor
@pytest.mark.parametrize("who", WHO)
def test_the_other_side_knows_only_weaker_ones(
    who: str, parameter: str, enough: frozenset[str]
) -> None:
    left = tuple(name for name in NAMES[parameter] if name not in enough)
    strong = {"require": {parameter: enough}}
    weak = {"algorithms": {**NAMES, parameter: left}}
    pair = make_pair(*((strong, weak) if who == "initiator" else (weak, strong)))
    pair.pump()
    assert_rejected(pair, parameter)


@each_floor
def test_a_reply_below_the_floor(parameter: str, enough: frozenset[str]) -> None:
    """The responder is honest; a middle node makes it choose on behalf of the initiator."""
    for name in NAMES[parameter]:
        if name in enough:
            continue
        pair = make_pair(a={"require": {parameter: enough}})
        pair.carry(pair.a)
        reply, *rest = events_of(pair.b.take(pair.now))
        flight = [chosen(reply, parameter, name), *rest]
        pair.deliver(pair.a, b"".join(map(frame, flight)))
        assert pair.a.code == CloseCode.PROTOCOL_ERROR
        pair.run(60.0)
        assert_nothing_was_agreed(pair)


@each_parameter
@pytest.mark.parametrize("who", WHO)
def test_what_reaches_the_floor_is_agreed(who: str, parameter: str) -> None:
    """The other side prefers something weaker, and accepts the minimum if it must."""
    strong = {"require": floor(parameter)}
    prefers = {"algorithms": {**NAMES, parameter: NAMES[parameter][::-1]}}
    pair = make_pair(*((strong, prefers) if who == "initiator" else (prefers, strong)))
    pair.pump()
    for side in pair.sides:
        suite = side.one(HandshakeCompleted).agreed.suite
        assert suite is not None
        assert suite.names()[parameter] == NAMES[parameter][0]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("parameter", [None, *PARAMETERS])
def test_no_one_falls_back_to_plaintext(parameter: str | None, who: str) -> None:
    """Nodes that support both encrypted and plaintext connections don't fall back either."""
    require = {"require": floor(parameter)} if parameter else {}
    if who == "initiator":
        pair = make_pair({**require}, {"plaintext": "only"})
        pair.pump()
        assert pair.a.code == CloseCode.PROTOCOL_ERROR
    else:
        pair = make_pair({"plaintext": "only"}, {**require})
        pair.pump()
        assert pair.b.code == CloseCode.PLAINTEXT_REFUSED
    assert_nothing_was_agreed(pair)


@each_parameter
@pytest.mark.parametrize("plaintext", ["only", "both"])
def test_a_floor_and_plaintext_do_not_go_together(plaintext: str, parameter: str) -> None:
    """A listener for both would accept plaintext in spite of its minimum."""
    with pytest.raises(ValueError, match="with require it must be"):
        make_config(ALICE, require=floor(parameter), plaintext=plaintext)
    config = node_config(algorithms={}, require=floor(parameter), plaintext=plaintext)
    with pytest.raises(ConfigError, match="with require it must be"):
        Node(identity("x", NAMES["signing"][0]), config=config)


# The agreed algorithms are visible.


EVERY_NAME: Final = [
    pytest.param(parameter, name, id=name) for parameter, names in NAMES.items() for name in names
]


def node_of(who: str, **settings: Any) -> Node:
    """Return a node with a key of every algorithm."""
    return Node(identity(who, *NAMES["signing"]), config=node_config(**settings))


@pytest.mark.anyio
@pytest.mark.parametrize(("parameter", "name"), EVERY_NAME)
async def test_the_api_and_the_log_of_both_sides_say_what_was_agreed(
    parameter: str, name: str, anyio_backend: str
) -> None:
    algorithms = {"kex": ("x25519",), parameter: (name,)}
    log: list[str] = []
    with anyio.fail_after(10), logged(log):
        async with (
            node_of("server", algorithms={"kex": NAMES["kex"][::-1]}) as server,
            node_of("client", algorithms=algorithms) as client,
        ):
            peer, back = await connect_nodes(client, server)
            for each, other in ((peer, server), (back, client)):
                assert each.encrypted
                assert each.suite is not None
                assert each.suite.names()[parameter] == name
                (line,) = [x for x in log if f"peer {other.node_id.short} open: " in x]
                assert line.startswith("INFO")
                assert [n for n in each.suite.names().values() if n not in line] == []
            await peer.close()


@pytest.mark.anyio
async def test_the_api_and_the_log_of_both_sides_say_that_nothing_was_encrypted(
    anyio_backend: str,
) -> None:
    log: list[str] = []
    with anyio.fail_after(10), logged(log):
        async with (
            node_of("server", plaintext="both") as server,
            node_of("client", plaintext="only") as client,
        ):
            peer, back = await connect_nodes(client, server)
            for each in (peer, back):
                assert (each.encrypted, each.suite, each.node_id) == (False, None, None)
            assert len([line for line in log if line.endswith("open: UNENCRYPTED")]) == 2
            await peer.close()


@pytest.mark.anyio
@pytest.mark.parametrize(("parameter", "enough"), FLOORS[:1])
@pytest.mark.parametrize("who", WHO)
async def test_a_refusal_is_typed_and_in_the_log_of_both_sides(
    who: str, parameter: str, enough: frozenset[str], anyio_backend: str, tmp_path: Path
) -> None:
    """The error names the parameter, and the node doesn't try again."""
    left = tuple(name for name in NAMES[parameter] if name not in enough)
    strong: dict[str, Any] = {"algorithms": {}, "require": {parameter: enough}}
    weak: dict[str, Any] = {"algorithms": {parameter: left}}
    ours, theirs = (strong, weak) if who == "initiator" else (weak, strong)
    log: list[str] = []
    with anyio.fail_after(10), logged(log):
        async with node_of("server", **theirs) as server, node_of("client", **ours) as client:
            address = await server.listen(f"unix://{tmp_path}/socket")
            with pytest.raises(HandshakeError, match=f"no common algorithm: {parameter}") as error:
                await client.connect(address, trust=AnyPeer())
            assert error.value.code == CloseCode.NO_COMMON_ALGORITHM
            await eventually(lambda: not server.peers and not client.peers)
    ended = [line for line in log if "ended: no-common-algorithm" in line]
    assert len(ended) == 2
    assert all(parameter in line for line in ended)
    assert not [line for line in log if " open: " in line]


def test_the_cli_says_what_was_agreed(processes: Processes, parley: Parley) -> None:
    """A process listens, and commands dial it."""
    cipher = "chacha20-poly1305"
    running, (address,) = processes.serve("--cipher", cipher, "--log-level", "info")
    weak = parley("call", address, "parley.echo", "x", "--kex", "x25519", "--json")
    suite = weak.lines[0]["suite"]
    assert (suite["kex"], suite["cipher"]) == ("x25519", cipher)
    assert sorted(suite) == sorted(PARAMETERS)
    shown = parley("doctor", address, "--kex", "x25519")
    assert [name for name in suite.values() if name not in shown.out] == []
    refused = parley("call", address, "parley.echo", "x", "--require", "aes-256-gcm", "--json")
    assert (refused.code, refused.last["event"]) == (1, "error")
    assert "no common algorithm: cipher" in refused.last["text"]
    log = running.stop().err
    assert [name for name in suite.values() if name not in log] == []
    assert "ended: no-common-algorithm (no common cipher algorithm)" in log
