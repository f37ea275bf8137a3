"""Who may do what: the matrix of requests, and what a callback can do wrong."""

import logging
from collections import Counter
from typing import Any

import pytest

from node.errors import ParleyError
from node.protocol.codes import ResultCode
from node.remote_bus.authorisation import Allow, BusRequest
from node.remote_bus.bus_requests import (
    Ack,
    Bury,
    Claim,
    Drop,
    Given,
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
from node.remote_bus.service import offer_bus
from node.streams.stream import Stream
from tests.node.remote_bus.offered import GROUP, NAME, ask, between, everything, given

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
async def test_each_request_needs_its_right_and_no_other(
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


async def test_all_names_of_a_publish_have_to_be_allowed(anyio_backend: str) -> None:
    async with between(lambda request: request.name == NAME) as bus:
        both = Publish([Given(NAME, "{}", None, 1), Given("auth.other", "{}", None, 1)])
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
        (None, ResultCode.NOT_AUTHORISED),
    ],
)
async def test_only_true_allows(
    anyio_backend: str, allow: Allow, code: ResultCode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "parley.bus"):
        async with between(allow) as bus:
            answer = await ask(bus.stream(), given())
            assert (answer.code, answer.text) == (code, "")
    failed = [record for record in caplog.records if record.exc_info]
    assert len(failed) == (allow is fails)


async def test_refusals_are_logged_in_rations(
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
    """It is the callback's to say; what it is told is that nothing was proved."""

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
        with pytest.raises(ParleyError, match="one is"):
            offer_bus(bus.nodes.server.handlers, bus.offered, everything)
        with pytest.raises(ParleyError, match="reserved"):
            bus.nodes.server.on_stream("bus")(nobody)
        with pytest.raises(ParleyError, match="reserved"):
            bus.nodes.peer.open_stream("bus")
