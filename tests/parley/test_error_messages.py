"""Each error class that users see is raised by a real mistake, and its text names the value.

A text has the form `cannot VERB OBJECT 'VALUE': REASON; HINT`: it begins in lower case, has no full
stop, and names the value at fault.
"""

from collections.abc import Callable
from inspect import isawaitable, isclass
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

import parley.codes
import parley.errors
from parley import (
    Identity,
    Node,
    NodeId,
    PassphraseCost,
    create_revocation,
    formatted,
    load_identity,
    load_statement,
    save_identity,
)
from parley._node.testing import ConnectedNodes
from parley.bus import open_bus
from parley.codes import Code
from parley.errors import CallRefused, SubscribeRefused
from parley.journal import AuditorKey
from parley.protocol import decode, encode
from parley.transfer import Source
from parley.trust import AnyPeer, FirstUse, KeyStatements, KnownPeers
from tests.node.network import meeting, new_node

pytestmark = pytest.mark.anyio

Trigger = Callable[[ConnectedNodes, Path], Any]


def written(path: Path, data: bytes | str = b"") -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(0o600)
    return path


def key_file(directory: Path, mode: int = 0o600, **options: Any) -> Path:
    path = directory / "a.key"
    save_identity(path, Identity.create(), **options)
    path.chmod(mode)
    return path


def twice(directory: Path) -> None:
    key_file(directory)
    key_file(directory)


def encrypted(directory: Path) -> Path:
    return key_file(directory, passphrase=b"secret", cost=PassphraseCost(1, 8192))


def damaged_known_peers(directory: Path) -> object:
    return KnownPeers(written(directory / "peers", "x")).by_name("a")


def damaged_key_statements(directory: Path) -> None:
    KeyStatements(written(directory / "key_statements", "x")).refresh()


async def dial_ended() -> None:
    old = Identity.create()
    statements = KeyStatements()
    statements.apply(create_revocation(old).encoded)
    async with Node(Identity.create(), statements=statements) as node:
        await node.connect(f"memory://ended#{old.node_id}")


async def damaged_bus(directory: Path) -> None:
    written(directory / "bus", "x" * 5000)
    await publish(directory, "a.b")


async def dial(met: ConnectedNodes, address: str) -> None:
    await met.client.connect(address, trust=AnyPeer())


async def publish(path: Path, name: str, data: Any = None, **options: Any) -> None:
    async with open_bus(f"sqlite:///{path}/bus", **options) as bus:
        await bus.publish(name, data or {})


async def refused(met: ConnectedNodes, refusal: Exception) -> None:
    @met.server.on_call("refuse")
    async def refuse(call: Any) -> None:
        raise refusal

    await met.peer.call("refuse", timeout=5)


async def subscribe(met: ConnectedNodes, topic: str) -> None:
    @met.server.topic(topic).on_subscribe
    async def decide(request: Any) -> None:
        raise SubscribeRefused("members only")

    async with met.peer.subscribe(topic) as subscription:
        await anext(subscription)


async def changed(path: Path) -> None:
    """Dial the same name twice, with another identity behind it the second time."""
    known = FirstUse(KnownPeers(path / "known_peers"))
    async with new_node() as client:
        for _ in range(2):
            async with new_node() as server:
                address = await server.listen(f"unix://{path}/socket")
                await client.connect(address.partition("#")[0], trust=known)
                await server.aclose()


async def untrusted() -> None:
    async with new_node() as server, new_node() as other, new_node() as client:
        address = await server.listen("tcp://127.0.0.1:0")
        await client.connect(f"{address.partition('#')[0]}#{other.node_id}")


async def closed(met: ConnectedNodes) -> None:
    await met.peer.close()
    await met.peer.call("greet", timeout=5)


async def reset(met: ConnectedNodes) -> None:
    async with met.peer.open_stream("absent") as stream:
        async for _ in stream:
            pass


def serve(met: ConnectedNodes) -> None:
    """Register the handlers that triggers call."""

    @met.server.on_call("greet")
    async def greet(call: Any) -> str:
        return "hello"

    @met.server.on_call("sleep")
    async def sleep(call: Any) -> None:
        await anyio.sleep_forever()

    @met.server.on_call("items")
    async def items(call: Any) -> Any:
        yield 1


TRIGGERS: dict[str, tuple[Trigger, str]] = {
    "AddressError": (lambda met, _: met.client.connect("tcp:/nowhere"), "tcp:/nowhere"),
    "UnreachableError": (lambda met, _: dial(met, "tcp://127.0.0.1:1"), "127.0.0.1:1"),
    "ConfigError": (lambda *_: Node(Identity.create(), trust=cast("Any", 5)), "5"),
    "InvalidEventError": (lambda _, path: publish(path, "x"), "'x'"),
    "BusDamagedError": (lambda _, path: damaged_bus(path), "bus"),
    "KeyFileUnreadableError": (lambda _, path: load_identity(path / "absent.key"), "absent.key"),
    "KeyFileExistsError": (lambda _, path: twice(path), "a.key"),
    "KeyFileTooOpenError": (lambda _, path: load_identity(key_file(path, 0o644)), "a.key"),
    "KeyFileMalformedError": (lambda _, path: load_identity(written(path / "a.key")), "a.key"),
    "PassphraseNeededError": (lambda _, path: load_identity(encrypted(path)), "a.key"),
    "WrongPassphraseError": (
        lambda _, path: load_identity(encrypted(path), b"wrong"),
        "a.key",
    ),
    "PassphraseError": (lambda _, path: key_file(path, passphrase=b""), "passphrase"),
    "IdentityError": (lambda *_: NodeId.parse("abc"), "'abc'"),
    "StatementError": (lambda _, path: load_statement(written(path / "a.txt")), "a.txt"),
    "InvalidKeyError": (lambda *_: AuditorKey.parse("abc"), "abc"),
    "UnknownAlgorithmError": (lambda *_: Identity.create(("rsa",)), "'rsa'"),
    "LbmEncodeError": (lambda *_: encode({1: cast("Any", object())}), "object"),
    "LbmDecodeError": (lambda *_: decode(b"\x01"), "0x01"),
    "KeyStatementsError": (lambda _, path: damaged_key_statements(path), "statement BASE64"),
    "KnownPeersError": (lambda _, path: damaged_known_peers(path), "peers"),
    "FileError": (lambda met, path: Source.open(path / "absent.txt"), "absent.txt"),
    "FormatError": (lambda *_: formatted({"x": object()}, "json"), "object"),
    "CallRefused": (lambda met, _: refused(met, CallRefused(77, "no paper")), "77"),
    "CallTimeout": (lambda met, _: met.peer.call("sleep", timeout=0.01), "17"),
    "SubscribeRefused": (lambda met, _: subscribe(met, "private"), "3"),
    "IdentityChangedError": (lambda _, path: changed(path), "socket"),
    "IdentityEndedError": (lambda *_: dial_ended(), "no node takes its place"),
    "NotTrustedError": (lambda *_: untrusted(), "expected"),
    "PayloadTooLargeError": (
        lambda met, _: met.peer.call("greet", b"x" * 20_000_000, timeout=5),
        "bytes",
    ),
    "MalformedDataError": (lambda met, _: met.peer.call("greet", 1, returns=int, timeout=5), "$"),
    "PeerClosedError": (lambda met, _: closed(met), "closed"),
    "StreamResetError": (lambda met, _: reset(met), "no-handler"),
    "StreamedAnswerError": (lambda met, _: met.peer.call("items", timeout=5), "call_stream"),
    "CodeTextError": (lambda *_: Code.parse("7-abc-xyz"), "'abc'"),
}

# Classes that only serve as bases, and those that need a peer, a store or a Java process that
# misbehaves. The tests of their modules check their texts.
ELSEWHERE = {
    "BusBusyError",
    "BusClosedError",
    "BusError",
    "BusFullError",
    "BusRefusedError",
    "BusUnavailableError",
    "ConversionError",
    "CryptoError",
    "DamagedTablesError",
    "HandshakeError",
    "IngestError",
    "InsecureAddressError",
    "JournalBusyError",
    "JournalError",
    "JournalFailedError",
    "JournalFormatError",
    "KeyFileError",
    "LbmError",
    "LimitReachedError",
    "LocalError",
    "LocalProtocolError",
    "NoJavaError",
    "NoTablesError",
    "NotOnceError",
    "NotPendingError",
    "NotSpokenError",
    "OutcomeUnknownError",
    "ParleyError",
    "PipelineError",
    "RelayRefusedError",
    "SchemaViolationError",
    "TunnelRefusedError",
    "UnreadRepliesError",
}


def test_every_error_class_has_a_mistake_or_is_tested_elsewhere() -> None:
    public = {name for name in parley.errors.__all__ if isclass(getattr(parley.errors, name))}
    assert public - TRIGGERS.keys() == ELSEWHERE


async def run(trigger: Trigger, met: ConnectedNodes, directory: Path) -> None:
    result = trigger(met, directory)
    if isawaitable(result):
        await result


@pytest.mark.parametrize("name", TRIGGERS)
async def test_a_mistake_names_its_value(name: str, tmp_path: Path) -> None:
    trigger, value = TRIGGERS[name]
    error = getattr(parley.errors, name, None) or getattr(parley.codes, name)
    async with meeting() as met:
        serve(met)
        with pytest.raises(error) as raised:
            await run(trigger, met, tmp_path)
    text = str(raised.value)
    assert type(raised.value) is error
    assert value in text
    assert not text[0].isupper(), text
    assert not text.endswith("."), text
