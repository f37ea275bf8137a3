"""The bus of `parley serve`, used over the network by nodes with rights."""

from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from types import SimpleNamespace
from typing import Any

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._node.cli.serve.bus_rights import BusRights
from parley._node.handlers.permissions import Roles
from parley._node.settings import BusSettings
from tests.node.cli.conftest import NAME, Parley, Publish, said
from tests.node.cli.processes import Processes, Running

ONE, OTHER = (Identity.create().node_id for _ in range(2))


def request(**fields: Any) -> Any:
    usual = {"peer": SimpleNamespace(node_id=ONE), "action": "publish", "name": NAME, "group": None}
    return SimpleNamespace(**{**usual, **fields})


def test_whatever_no_entry_allows_is_not_allowed() -> None:
    roles = Roles()
    rights = BusRights(BusSettings(), roles)
    assert not rights.allow(request())
    told = (f"{ONE}=publish:shop.*", "*=consume+inspect:*:audit")
    rights.change(BusSettings(url="sqlite:////bus", allow=told))
    allow = rights.allow
    assert allow(request())
    assert not allow(request(name="auth.user"))
    assert not allow(request(peer=SimpleNamespace(node_id=OTHER)))
    assert not allow(request(action="consume", group="mailer"))
    assert allow(request(action="consume", group="audit"))
    assert allow(request(action="inspect", group="audit", peer=SimpleNamespace(node_id=None)))
    assert not allow(request(action="inspect"))
    assert not allow(request(action="inspect", name=None))
    assert not allow(request(action="manage", group="audit"))
    assert not allow(request(action="manage", group="x"))


@pytest.mark.anyio
async def test_a_role_gives_rights_whoever_says_that_a_node_has_it(anyio_backend: str) -> None:
    settings = BusSettings(url="sqlite:////bus", allow=("@clerk=manage:shop.*:x",))
    roles = Roles()
    rights = BusRights(settings, roles)

    async def may(who: NodeId | None, group: str = "x") -> bool:
        peer = SimpleNamespace(node_id=who, backend=SimpleNamespace(now=lambda: 0.0))
        answer = rights.allow(request(action="manage", group=group, peer=peer))
        return answer if isinstance(answer, bool) else await answer

    assert not await may(ONE)
    roles.assign(ONE, "clerk")
    assert await may(ONE)
    assert not await may(ONE, group="y")
    assert not await may(OTHER)
    roles.ask(lambda node_id: ["clerk"] if node_id == OTHER else [])
    assert await may(OTHER)
    assert not await may(None)


def test_over_the_network(processes: Processes, parley: Parley, bus: str, publish: Publish) -> None:
    rights = ("*=publish+consume+inspect:shop.*", "*=manage:shop.ordered*")
    args = ("--bus", f"{bus}?service=shop", *(p for r in rights for p in ("--bus-allow", r)))
    running = processes.start("serve", "--json", "--listen", "tcp://127.0.0.1:0", *args)
    assert running.event("bus") == {"event": "bus", "url": bus, "rights": list(rights)}
    (address,) = running.event("ready")["addresses"]
    ids = publish(3, NAME, address)
    tailed = parley("bus", "tail", address, NAME, "--json")
    assert [line["event"] for line in tailed.lines] == ["connected", *["event"] * 3, "done"]
    assert [line["id"] for line in said(tailed, "event")] == ids
    consume = ("bus", "consume", address, NAME, "--group", "mailer")
    assert parley(*consume, "--count", "2", "--batch", "2").out.splitlines()[1].startswith(ids[1])
    (group,) = said(parley("bus", "groups", address, NAME, "--json"), "group")
    assert group["lag"] + group["pending"] == 1
    # The same file, while the node has it open.
    assert parley("bus", "groups", bus, NAME, "--max", "0").code == 7
    for command in (
        ("publish", address, "auth.user"),
        ("groups", address),
        ("trim", address, "shop.paid", "--max-length", "0"),
        ("replay", address, "auth.user", "--group", "mailer", "--start", "first"),
        ("dlq", "replay", address, NAME, "--all"),  # which asks for all streams
    ):
        done = parley("bus", *command, "--json")
        assert (done.code, done.last["name"], done.last["code"]) == (5, "not-authorised", 20)
    assert parley(*consume, "--count", "1", "--exec", "false", "--max-attempts", "1").code == 0
    (letter,) = said(parley("bus", "dlq", "list", address, NAME, "--json"), "dead-letter")
    replay = ("bus", "dlq", "replay", address, NAME, letter["id"], "--json")
    assert parley(*replay).last == {"event": "done", "replayed": 1}
    assert parley(*consume, "--count", "1").out.startswith(ids[2])
    assert parley("bus", "trim", address, NAME, "--max-length", "1", "--json").last["removed"] == 2
    done = running.stop()
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("resume", ["30", "0"])
def test_a_node_that_dies_and_comes_again(
    processes: Processes,
    parley: Parley,
    bus: str,
    publish: Publish,
    tmp_path: Path,
    loop: str,
    resume: str,
) -> None:
    """Consumers and followers wait and continue, whether or not the session can be resumed."""
    serve = _serving(processes, parley, bus, tmp_path, PARLEY_NODE_RESUME=resume)
    node, address = serve()
    publish(1)
    options = ("--json", "--loop", loop)
    consumer = processes.start("bus", "consume", address, NAME, "--group", "mailer", *options)
    follower = processes.start("bus", "tail", address, NAME, "-f", "--start", "first", *options)
    for one in (consumer, follower):
        assert [one.event(kind)["event"] for kind in ("connected", "event")]
    node.stop(SIGKILL)
    for one in (consumer, follower):
        one.event("suspended" if resume == "30" else "disconnected")
    serve()
    assert parley("bus", "publish", bus, NAME, '{"n": 2}').code == 0
    for one in (consumer, follower):
        one.event("connected")
        # The event that was printed but not acknowledged is redelivered.
        while (event := one.event("event"))["data"] != {"n": 2}:
            assert event["attempt"] == 2
        done = one.stop()
        assert (done.code, done.last["name"]) == (143, "interrupted")
        assert "Traceback" not in done.err


def test_a_consumer_tells_people_of_its_connection(
    processes: Processes, parley: Parley, bus: str, publish: Publish, tmp_path: Path
) -> None:
    serve = _serving(processes, parley, bus, tmp_path)
    node, address = serve()
    publish(1)
    consumer = processes.start("bus", "consume", address, NAME, "--group", "mailer", "--count", "2")
    assert consumer.line().endswith('{"n": 1}')
    node.stop(SIGKILL)
    serve()
    assert parley("bus", "publish", bus, NAME, '{"n": 2}').code == 0
    done = consumer.finish()
    assert done.code == 0
    assert done.out.endswith('{"n": 2}\n')
    lines = done.err.splitlines()
    lost, again = [line for line in lines if "parley." not in line]
    assert lost.startswith("connection lost: ")
    assert again.endswith(" s, in a new session")


def test_a_publisher_whose_node_dies(
    processes: Processes, parley: Parley, bus: str, tmp_path: Path
) -> None:
    """The publisher exits and names the lines whose outcome is unknown."""
    node, address = _serving(processes, parley, bus, tmp_path, PARLEY_NODE_RESUME="0")()
    publisher = processes.start(
        *("bus", "publish", address, NAME, "--json-lines", "--json"), typing=True
    )
    publisher.type('{"n": 2}\n')
    publisher.event("published")
    node.stop(SIGKILL)
    publisher.type('{"n": 3}\n')
    done = publisher.finish()
    assert (done.code, done.last["name"]) == (3, "unreachable")
    # The outcome depends on when the loss was noticed.
    sentences = ("cannot store line 2: the c", "cannot tell whether line 2 was stored: the c")
    assert done.last["text"].startswith(sentences)


def _serving(
    processes: Processes, parley: Parley, bus: str, directory: Path, **environment: str
) -> Callable[[], tuple[Running, str]]:
    """What starts a node that offers a bus, each time under the same identity and address."""
    key = str(directory / "key")
    assert parley("id", "new", key).code == 0

    def serve() -> tuple[Running, str]:
        args = ("--identity", key, "--bus", bus, "--bus-allow", "*=publish+consume+inspect:*")
        place = f"unix://{directory}/s"
        node = processes.start("serve", "--json", "--listen", place, *args, environment=environment)
        (address,) = node.event("ready")["addresses"]
        return node, address

    return serve


def test_a_consumer_that_is_not_to_wait_does_not_wait_for_a_node(
    processes: Processes, parley: Parley, bus: str, publish: Publish
) -> None:
    publish(1)
    node, (address,) = processes.serve("--bus", bus, "--bus-allow", "*=consume:*")
    kill = ("--exec", f"kill -9 {node.process.pid}; sleep 0.2", "--idle", "0.2s")
    done = parley(
        "bus", "consume", address, NAME, "--group", "mailer", *kill, "--json", "--resume", "0"
    )
    assert (done.code, done.last["name"]) == (3, "unreachable")
    assert done.last["text"].startswith("cannot use the bus over the link to tcp://127.0.0.1:")
    assert "the connection was lost; run the command again" in done.last["text"]


@pytest.mark.parametrize(
    "command", [("consume", NAME, "--group", "mailer"), ("tail", NAME, "--follow")]
)
def test_the_first_connection_has_to_be_made(
    parley: Parley, server: str, command: tuple[str, ...]
) -> None:
    kind, *args = command
    nobody = f"tcp://127.0.0.1:1#{ONE}"
    done = parley("bus", kind, nobody, *args)
    assert (done.code, done.out) == (3, "")
    assert done.err == "parley: cannot reach tcp://127.0.0.1:1: nothing is listening there\n"
    done = parley("bus", kind, f"{server.partition('#')[0]}#{ONE}", *args, "--json")
    assert (done.code, done.last["name"]) == (4, "peer-not-trusted")


def test_a_node_without_a_bus(parley: Parley, server: str) -> None:
    assert parley("bus", "tail", server, NAME).code == 5


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (
            ("--bus-allow", "*=publish:*"),
            2,
            "cannot allow *=publish:* on the bus: no bus is configured",
        ),
        (
            ("--bus", "tcp://127.0.0.1:1"),
            2,
            "cannot offer the bus 'tcp://127.0.0.1:1': it belongs to another node",
        ),
        (("--bus", "sqlite:///bus.db", "--bus-allow", "*"), 2, "expected NODEID="),
        (("--bus", "sqlite:////dev/null/bus.db"), 2, "the directory does not exist"),
    ],
)
def test_what_is_not_offered(
    parley: Parley,
    args: tuple[str, ...],
    code: int,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = parley("serve", "--listen", "tcp://127.0.0.1:0", *args)
    assert (done.code, done.out) == (code, "")
    assert sentence in done.err
