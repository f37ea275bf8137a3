"""Tests of node/handlers/permissions.py: rights follow from node ids alone."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from parley import Call, CallRefused, Peer, Stream
from parley._crypto.identity import Identity, NodeId
from parley._node.errors import ConfigError, StreamResetError
from parley._node.handlers.permissions import Allow, Roles, Rule, is_permitted
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.testing import ConnectedNodes, FakeClock
from tests.node.network import config, eventually, meeting

pytestmark = pytest.mark.anyio

ALICE, BOB = Identity.create().node_id, Identity.create().node_id


# Roles.


def test_roles_are_given_and_taken() -> None:
    roles = Roles()
    assert roles.of(ALICE) == roles.of(None) == frozenset()
    roles.assign(ALICE, "admin", "reader")
    roles.assign(ALICE, "writer")
    roles.assign(BOB, "reader")
    assert roles.of(ALICE) == {"admin", "reader", "writer"}
    roles.revoke(ALICE, "admin", "never had")
    assert roles.of(ALICE) == {"reader", "writer"}
    roles.revoke(ALICE)
    roles.revoke(ALICE, "x")
    assert roles.of(ALICE) == frozenset()
    assert roles.of(BOB) == {"reader"}


@pytest.mark.parametrize("role", ["", ALICE.text, None, 5], ids=["empty", "id", "none", "number"])
def test_what_is_no_role(role: Any) -> None:
    roles = Roles()
    with pytest.raises(ConfigError):
        roles.assign(ALICE, "fine", role)
    assert roles.of(ALICE) == frozenset()


@pytest.mark.parametrize("node_id", [ALICE.text, bytes(ALICE), None], ids=["text", "bytes", "none"])
def test_roles_are_for_node_ids_alone(node_id: Any) -> None:
    """Another thing would be kept, and never be found."""
    with pytest.raises(ConfigError):
        Roles().assign(node_id, "admin")


# Rules, of a peer that is only its node id.


class Somebody:
    """All that a rule asks of a peer."""

    def __init__(self, node_id: NodeId | None) -> None:
        self.node_id = node_id
        self.backend = FakeClock()
        self.name = "192.0.2.1"


async def permits(allow: Allow, node_id: NodeId | None, roles: Roles | None = None) -> bool:
    somebody: Any = Somebody(node_id)
    return await Rule(allow).permits(somebody, "x", roles or Roles())


@pytest.mark.parametrize(
    "allow",
    [ALICE, ALICE.text, [ALICE], [ALICE.text], (BOB, ALICE), {ALICE, "admin"}],
    ids=["id", "text", "list", "list of text", "tuple", "set with a role"],
)
async def test_node_ids_and_their_texts(allow: Any) -> None:
    rule, roles = Rule(allow), Roles()
    somebody: Any = Somebody
    assert await rule.permits(somebody(ALICE), "x", roles)
    assert not await rule.permits(somebody(Identity.create().node_id), "x", roles)
    assert not await rule.permits(somebody(None), "x", roles)


@pytest.mark.parametrize("allow", ["admin", ["admin"], ["writer", "admin"]])
async def test_roles_at_the_moment(allow: Allow) -> None:
    roles = Roles()
    assert not await permits(allow, ALICE, roles)
    roles.assign(ALICE, "admin")
    assert await permits(allow, ALICE, roles)
    assert not await permits(allow, BOB, roles)
    assert not await permits(allow, None, roles)
    roles.revoke(ALICE, "admin")
    assert not await permits(allow, ALICE, roles)


async def true(peer: Peer, name: str) -> bool:
    await anyio.lowlevel.checkpoint()
    return True


async def false(peer: Peer, name: str) -> bool:
    return False


async def one(peer: Peer, name: str) -> Any:
    return 1


async def fails(peer: Peer, name: str) -> bool:
    raise ValueError("a secret")


def fails_at_once(peer: Peer, name: str) -> bool:
    raise ValueError("a secret")


@pytest.mark.parametrize(
    ("function", "allowed"),
    [
        (true, True),
        (lambda peer, name: True, True),
        (lambda peer, name: true(peer, name), True),
        (lambda peer, name: name == "x", True),
        (lambda peer, name: peer.node_id == ALICE, True),
        (false, False),
        (one, False),
        (fails, False),
        (fails_at_once, False),
        (lambda peer, name: False, False),
        (lambda peer, name: None, False),
        (lambda peer, name: 1, False),
        (lambda peer, name: "yes", False),
    ],
)
async def test_functions_allow_with_true_and_nothing_else(
    function: Any, allowed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert await permits(function, ALICE) is allowed
    if function in (fails, fails_at_once):
        assert "a secret" in caplog.text


async def test_every_rule_has_to_permit() -> None:
    somebody: Any = Somebody(ALICE)
    yes, no = Rule(ALICE), Rule(BOB)
    for rules, allowed in [((), True), ((yes,), True), ((yes, no), False), ((no, yes), False)]:
        assert await is_permitted(rules, somebody, "x", Roles()) is allowed


# Between two nodes.


async def code_of_call(peer: Peer, topic: str) -> int:
    try:
        answer = await peer.call(topic)
    except CallRefused as refused:
        return refused.code if refused.data is None else -1  # It gets no further notes.
    assert answer == topic
    return 0


async def code_of_stream(peer: Peer, label: str) -> int:
    try:
        async with peer.open_stream(label) as stream:
            assert await stream.receive() == label.encode()
    except StreamResetError as reset:
        return reset.code
    return 0


def offer(met: ConnectedNodes, name: str, **options: Any) -> list[str]:
    """A call and a stream of one name; returns what ran."""
    ran: list[str] = []

    @met.server.on_call(name, **options)
    async def call(call: Call) -> str:
        ran.append(call.topic)
        return call.topic

    @met.server.on_stream(name, **options)
    async def stream(stream: Stream) -> None:
        ran.append(stream.label)
        await stream.send(stream.label.encode())

    return ran


async def codes(met: ConnectedNodes, name: str) -> tuple[int, int]:
    """Of a call and of a stream, each 0 or what refused it."""
    return await code_of_call(met.peer, name), await code_of_stream(met.peer, name)


FORBIDDEN = (ResultCode.NOT_AUTHORISED, CloseCode.NOT_AUTHORISED)
ALLOWED = (0, 0)


def of_client(met: ConnectedNodes) -> NodeId:
    assert met.back.node_id is not None
    return met.back.node_id


async def test_who_is_not_allowed_gets_code_20_and_no_handler(met: ConnectedNodes) -> None:
    ran = offer(met, "closed", allow=[BOB])
    offer(met, "open", allow=[of_client(met).text])
    assert await codes(met, "closed") == FORBIDDEN
    assert await codes(met, "open") == ALLOWED
    assert ran == []
    assert FORBIDDEN == (20, 20)


@pytest.mark.parametrize("role", ["client", "server", "peer"])
async def test_a_claimed_role_gives_no_rights(role: str) -> None:
    ours = config(role=role, info={"role": "admin", "roles": ["admin", role]})
    async with meeting(client=ours) as met:
        assert met.back.role == role
        offer(met, "x", allow=[role, "admin"])
        assert await codes(met, "x") == FORBIDDEN


async def test_who_proved_no_id_is_in_no_list() -> None:
    async with meeting(plaintext="only") as met:
        assert met.back.node_id is None
        offer(met, "listed", allow=[met.client.node_id, "admin"])
        met.server.roles.assign(met.client.node_id, "admin")
        offer(met, "free")
        offer(met, "asked", allow=lambda peer, name: not peer.encrypted)
        assert await codes(met, "listed") == FORBIDDEN
        assert await codes(met, "free") == await codes(met, "asked") == ALLOWED


async def test_the_function_is_told_who_and_what(met: ConnectedNodes) -> None:
    asked: list[tuple[Peer, str]] = []

    async def allow(peer: Peer, name: str) -> bool:
        await anyio.lowlevel.checkpoint()
        asked.append((peer, name))
        return name.endswith("ok")

    offer(met, "*", allow=allow)
    assert await codes(met, "it is ok") == ALLOWED
    assert await codes(met, "it is not") == FORBIDDEN
    assert asked == [(met.back, "it is ok")] * 2 + [(met.back, "it is not")] * 2


async def test_a_function_that_takes_its_time_is_cancelled_with_its_call(
    met: ConnectedNodes,
) -> None:
    ended: list[str] = []

    async def allow(peer: Peer, name: str) -> bool:
        try:
            await anyio.sleep(60)
        finally:
            ended.append(name)
        return True

    ran = offer(met, "x", allow=allow)
    with anyio.move_on_after(0.02):
        await met.peer.call("x")
    await eventually(lambda: ended == ["x"])
    with pytest.raises(CallRefused) as caught:
        await met.peer.call("x", timeout=0.02)
    assert caught.value.code == ResultCode.DEADLINE_EXCEEDED
    await eventually(lambda: met.back.running_calls == 0 and not len(met.peer.outgoing))
    assert ran == []


async def test_refusals_are_in_the_log_and_leave_nothing(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    offer(met, "x", allow=[])
    for _ in range(3):
        assert await codes(met, "x") == FORBIDDEN
    assert "is not allowed to use 'x'" in caplog.text
    assert met.back.running_calls == len(met.peer.outgoing) == 0
    await eventually(lambda: not len(met.peer.streams) and not len(met.back.streams))
    assert met.peer.dropped == met.back.dropped == 0
