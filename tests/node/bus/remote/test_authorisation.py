"""Permissions: the matrix of requests and actions, and invalid callbacks."""

import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parley._node.bus.errors import BusRefusedError
from parley._node.bus.remote.authorisation import AllowBus, BusRequest, BusRule
from parley._node.bus.remote.messages import (
    Ack,
    Bury,
    Claim,
    Drop,
    EventRow,
    Join,
    ListConsumers,
    ListGroups,
    ListPending,
    ListStreams,
    Nack,
    Own,
    Publish,
    Read,
    ReadHistory,
    Redeliver,
    Release,
    RemoveConsumers,
    RemoveGroup,
    Request,
    Rewind,
    Touch,
    TrimStream,
)
from parley._node.bus.remote.service import offer_bus
from parley._node.errors import ConfigError, ParleyError
from parley._node.protocol.codes import ResultCode
from parley._node.remote.stream import Stream
from tests.node.bus.remote.offered import GROUP, NAME, Between, ask, between, everything, given
from tests.node.network import new_node

pytestmark = pytest.mark.anyio

ID = "1-0"
MATRIX: dict[tuple[str, str, str | None], list[Request]] = {
    ("publish", NAME, None): [given()],
    ("manage", f"{NAME}.dead", None): [given(name=f"{NAME}.dead")],
    ("consume", NAME, GROUP): [
        Join(NAME, GROUP, "c", "0-0"),
        Read(NAME, GROUP, "c", 1),
        Own(NAME, GROUP, "c", 1),
        Claim(NAME, GROUP, "c", 1, 60.0),
        Touch(NAME, GROUP, "c", [ID]),
        Ack(NAME, GROUP, [ID]),
        Nack(NAME, GROUP, "c", ID, 0.0, ""),
        Release(NAME, GROUP, "c", [ID]),
        Bury(NAME, GROUP, "c", ID, ""),
    ],
    ("inspect", "", None): [ListStreams()],
    ("inspect", NAME, None): [ListGroups(NAME), ReadHistory(NAME, 1, "0-0")],
    ("inspect", NAME, GROUP): [ListConsumers(NAME, GROUP), ListPending(NAME, GROUP, 1, "0-0")],
    ("manage", "auth.*", None): [TrimStream("auth.*", 1)],
    ("manage", NAME, None): [TrimStream(NAME, 1), Drop(NAME, [ID])],
    ("manage", NAME, GROUP): [
        Rewind(NAME, GROUP, "0-0"),
        Redeliver(NAME, GROUP, [ID]),
        RemoveConsumers(NAME, GROUP, 60.0),
        RemoveGroup(NAME, GROUP),
    ],
}


@pytest.mark.parametrize("wanted", MATRIX)
async def test_each_request_needs_exactly_its_permission(
    anyio_backend: str, wanted: tuple[str, str, str | None]
) -> None:
    for right in (True, False):

        def allow(request: BusRequest, right: bool = right) -> bool:
            assert request.peer.node_id is not None
            return ((request.action, request.name, request.group) == wanted) == right

        async with between(allow) as bus:
            stream = bus.stream()
            for request in MATRIX[wanted]:
                code = (await ask(stream, request)).code
                assert code == (ResultCode.ACCEPTED if right else ResultCode.NOT_AUTHORISED)


async def test_publish_needs_permission_for_all_names(anyio_backend: str) -> None:
    async with between(lambda request: request.name == NAME) as bus:
        both = Publish([EventRow(NAME, "{}", None, 1), EventRow("auth.other", "{}", None, 1)])
        assert (await ask(bus.stream(), both)).code == ResultCode.NOT_AUTHORISED
        assert await bus.store.streams() == []


async def fails(request: BusRequest) -> bool:
    raise RuntimeError("secret")


async def agrees(request: BusRequest) -> bool:
    return True


async def shrugs(request: BusRequest) -> Any:
    return 1


@pytest.mark.parametrize(
    ("allow", "code"),
    [
        (agrees, ResultCode.ACCEPTED),
        (everything, ResultCode.ACCEPTED),
        (fails, ResultCode.NOT_AUTHORISED),
        (shrugs, ResultCode.NOT_AUTHORISED),
        (lambda request: None, ResultCode.NOT_AUTHORISED),
        ([], ResultCode.NOT_AUTHORISED),
        ({}, ResultCode.NOT_AUTHORISED),
    ],
)
async def test_only_true_allows(
    anyio_backend: str, allow: AllowBus, code: ResultCode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "parley.bus"):
        async with between(allow) as bus:
            answer = await ask(bus.stream(), given())
            assert (answer.code, answer.text) == (code, "")
    failed = [record for record in caplog.records if record.exc_info]
    assert len(failed) == (allow is fails)


async def fails_for(peer: object, name: str) -> bool:
    raise RuntimeError("secret")


ACTIONS = ("publish", "consume", "inspect", "manage")


async def allowed_actions(bus: Between) -> set[str]:
    stream, found = bus.stream(), set()
    for (action, *_), (request, *_) in MATRIX.items():
        if (await ask(stream, request)).code == ResultCode.ACCEPTED:
            found.add(action)
    return found


@pytest.mark.parametrize(
    ("allow", "as_worker", "as_other"),
    [
        ("worker", ACTIONS, ()),
        (["worker", "other"], ACTIONS, ACTIONS),
        (
            {"publish": "worker", "consume": ["worker", "other"]},
            ("publish", "consume"),
            ("consume",),
        ),
        ({"inspect": lambda peer, name: peer.node_id is not None}, ("inspect",), ("inspect",)),
        ({"manage": lambda peer, name: name == f"{NAME}.dead"}, ("manage",), ("manage",)),
        ({"publish": fails_for}, (), ()),
        (lambda peer, name: name != "", ACTIONS, ACTIONS),
        (lambda request: request.action == "inspect", ("inspect",), ("inspect",)),
    ],
)
async def test_roles_and_actions(
    anyio_backend: str, allow: AllowBus, as_worker: tuple[str, ...], as_other: tuple[str, ...]
) -> None:
    async with between(allow) as bus:
        client, roles = bus.nodes.client, bus.nodes.server.roles
        for role, expected in (("other", as_other), ("worker", as_worker)):
            roles.assign(client.node_id, role)
            assert await allowed_actions(bus) == set(expected)
            roles.revoke(client.node_id)


async def test_a_node_id_may_use_a_bus(anyio_backend: str, tmp_path: Path) -> None:
    async with new_node() as server, new_node() as client:
        bus = server.bus(f"sqlite:///{tmp_path}/bus.db", allow={"publish": client.node_id})
        peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
        async with peer.bus() as remote:
            await remote.publish(NAME, {})
            with pytest.raises(BusRefusedError):
                await remote.streams()
        assert len(await bus.streams()) == 1


@pytest.mark.parametrize(
    ("allow", "said"),
    [
        (True, "cannot use True as allow= or writers= (node IDs, roles or a function)"),
        (7, "cannot use 7 as allow= or writers= (node IDs, roles or a function)"),
        ([7], "invalid member 7 of allow=: expected a node ID or a role"),
        (
            {"read": "worker"},
            "invalid action 'read' in a bus's allow=: it must be one of publish, ",
        ),
        ({"publish": {"x": "worker"}}, "only a bus has a rule for each action"),
        (lambda: True, "must be callable with"),
    ],
)
def test_invalid_rules(allow: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        BusRule(allow)


async def test_refusal_log_lines_are_rate_limited(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "parley"):
        async with between(fails) as bus:
            stream = bus.stream()
            for _ in range(120):
                await ask(stream, ListStreams())
    told = Counter(vars(record)["event"] for record in caplog.records)
    assert 100 <= told["rule.failed"] <= 105
    assert 100 <= told["request.refused"] <= 105


@pytest.mark.parametrize("opened", [True, False])
async def test_unencrypted_peers_have_no_id(anyio_backend: str, opened: bool) -> None:
    """The callback decides; it learns that the peer has not proved a node ID."""

    def allow(request: BusRequest) -> bool:
        return request.peer.node_id is not None or opened

    async with between(allow, transport="tcp", plaintext="only") as bus:
        stream = bus.stream()
        code = (await ask(stream, Join(NAME, GROUP, "c", "0-0"))).code
        assert code == (ResultCode.ACCEPTED if opened else ResultCode.NOT_AUTHORISED)
        names = [one.name for one in await bus.store.consumers(NAME, GROUP)]
        assert names == (["unencrypted/c"] if opened else [])


async def nobody(stream: Stream) -> None:
    raise AssertionError("a reserved label has no handler")


async def test_one_bus_is_offered(anyio_backend: str) -> None:
    async with between() as bus:
        with pytest.raises(ParleyError, match="already offers"):
            offer_bus(bus.nodes.server.handlers, bus.offered, everything)
        with pytest.raises(ParleyError, match="reserved"):
            bus.nodes.server.on_stream("bus")(nobody)
        with pytest.raises(ParleyError, match="reserved"):
            bus.nodes.peer.open_stream("bus")
