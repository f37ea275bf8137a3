"""Secrets are compared in constant time, never shown, and dropped with their epoch.

`.ci/check_source.py` finds other comparisons, and import-linter finds cryptography elsewhere. Keys
of a past epoch during a connection: test_row_21_key_updates.py. Reprs of single types are tested
with their types (`test_no_secret_in_repr` in tests/crypto); these tests cover all output of a whole
node.
"""

import base64
import hmac
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import anyio
import pytest

from parley import Call, Node, NodeConfig, ParleyError, Stream
from parley._crypto.errors import CryptoError
from parley._crypto.hashing import extract, label
from parley._crypto.identity import Identity
from parley._crypto.keyfile import PassphraseCost, load_identity, save_identity
from parley._crypto.registry import SIGNING
from parley._node.protocol import record_layer as sealing
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.observer import Checkpoint
from parley._node.testing import connect_nodes
from parley._node.trust.policies import Pinned
from tests.alone import alive
from tests.node.network import PATIENCE, eventually
from tests.node.protocol.pair import ALICE, BOB, Pair, events_of, make_config, open_pair
from tests.node.tuned import tuned
from tests.security.key_search import Witnesses, kept_keys

PACKAGES: Final = ("crypto", "lbm", "node", "parley", "pipeline")

# Constant-time comparison.


@contextmanager
def compared(where: Any, name: str) -> Iterator[list[tuple[bytes, bytes]]]:
    """Record the arguments of `compare_digest` during the block."""
    seen: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((bytes(a), bytes(b)))
        return hmac_compare_digest(a, b)

    hmac_compare_digest = hmac.compare_digest
    with patch.object(where, name, compare):
        yield seen


@pytest.mark.pure
def test_chain_values_are_compared_in_constant_time() -> None:
    """Checks the 16 bytes of each event that represent its position in the chain."""
    pair = open_pair()
    with compared(sealing, "compare_digest") as seen:
        for payload in (b"one", b"two"):
            pair.a.core.send(1, 0, 64, 1, payload)
        sent = pair.carry(pair.a)
    values = [event[5:21] for event in events_of(sent)]
    assert [set(pair_of) for pair_of in seen[: len(values)]] == [{value} for value in values]


@pytest.mark.pure
def test_a_network_mac_is_compared_in_constant_time() -> None:
    key = bytes(range(32))
    pair = Pair(make_config(ALICE, network_key=key), make_config(BOB, network_key=key))
    with compared(hmac, "compare_digest") as seen:
        pair.carry(pair.a)
    assert len(seen) == 1
    assert {len(value) for value in seen[0]} == {32}


# Secrets are not shown.


class Secrets:
    """All inputs and outputs of the key schedule in a run, which must not appear in any output."""

    def __init__(self, *given: bytes) -> None:
        self.known: set[bytes] = set(given)

    def add(self, *secrets: bytes) -> None:
        self.known.update(secret for secret in secrets if len(secret) >= 16 and any(secret))

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record everything that is derived in the block, except the session's ID, which is
        public.
        """

        def extracted(hash: Any, salt: bytes, ikm: bytes) -> bytes:
            made = extract(hash, salt, ikm)
            self.add(made, ikm)
            return made

        def labelled(hash: Any, secret: bytes, name: str, context: bytes, size: int) -> bytes:
            made = label(hash, secret, name, context, size)
            if name != "session":
                self.add(made)
            return made

        with (
            patch("parley._crypto.key_schedule.extract", extracted),
            patch("parley._crypto.key_schedule.label", labelled),
            patch("parley._crypto.record_protection.label", labelled),
            patch("parley._crypto.record_protection.label", labelled),
        ):
            yield

    def shown_in(self, text: str) -> list[str]:
        """Return the secrets of which the text contains at least eight bytes, in any usual
        spelling.
        """
        lowered = text.lower()
        return [
            spelling
            for secret in self.known
            for spelling in spellings(secret)
            if spelling.lower() in lowered
        ]


def spellings(secret: bytes) -> Iterator[str]:
    """Return the usual spellings of eight bytes, at the beginning or end of a secret."""
    for part in (secret[:9], secret[-9:]):
        yield part.hex()[:16]
        yield repr(part)[2:-1]
        yield str(list(part))[1:-1]
        yield base64.b64encode(part).decode()
        yield base64.urlsafe_b64encode(part).decode()
        yield base64.b32encode(part[:5]).decode() + base64.b32encode(part[5:]).decode()[:6]
    yield str(int.from_bytes(secret))
    yield str(int.from_bytes(secret, "little"))


class Showing(Witnesses):
    """An observer that inspects all of the project's objects whenever there are new secrets."""

    def __init__(self, shown: list[str]) -> None:
        super().__init__()
        self.shown = shown

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        super().session_started(agreed, initiator, checkpoint)
        self.shown += all_reprs()

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        super().rekeyed(number, shared_secret, after_offer, after_answer)
        self.shown += all_reprs()


def all_reprs() -> list[str]:
    """Return the reprs of all objects of the project's packages, and of their classes' fields."""
    return [
        f"{thing!r} {thing}"
        for thing in alive()
        if not isinstance(thing, type) and type(thing).__module__.partition(".")[0] == "parley"
    ]


@pytest.mark.alone
@pytest.mark.anyio
async def test_nothing_that_is_shown_holds_a_secret(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Covers debug logs, errors with their tracebacks, and the reprs of all objects.

    There are handshakes that succeed and fail, calls, streams, updates, rekeys and wrong
    passphrases.
    """
    caplog.set_level(logging.DEBUG)
    network_key = bytes(range(100, 132))
    passphrase = b"correct horse battery staple"
    ours, theirs = Identity.create(tuple(SIGNING)), Identity.create()
    secrets = Secrets(network_key, passphrase)
    secrets.add(*(key.private_bytes() for each in (ours, theirs) for key in each.keys))
    shown: list[str] = []

    async def failing(what: Callable[[], Any]) -> None:
        with pytest.raises((ParleyError, CryptoError)) as caught:
            await what()
        shown.append("".join(traceback.format_exception(caught.value)))
        shown.append(repr(caught.value) + str(caught.value.args))

    path = tmp_path / "identity.key"
    save_identity(path, ours, passphrase, cost=PassphraseCost(1, 8))

    async def wrong_passphrase() -> None:
        load_identity(path, passphrase[:-1])

    await failing(wrong_passphrase)
    config = tuned(network_key=network_key, rekey_allowance=10)

    def observer() -> Showing:
        return Showing(shown)

    with secrets.recorded(), anyio.fail_after(PATIENCE):
        async with (
            Node(
                load_identity(path, passphrase), config=config, observer=lambda: Showing(shown)
            ) as a,
            Node(theirs, config=config, observer=observer) as b,
            Node(Identity.create(), config=NodeConfig(network_key=bytes(range(32)))) as c,
        ):
            serve(b)
            peer, back = await connect_nodes(a, b)
            assert await peer.call("echo", 1) == 1
            await failing(lambda: peer.call("fail"))
            async with peer.open_stream("sink") as stream:
                await stream.send(b"x")
            peer.update_keys()
            back.update_keys()
            await peer.rekey()
            assert await peer.call("echo", 2) == 2
            shown += all_reprs()
            await failing(lambda: connect_nodes(c, b))  # another network
            await failing(lambda: connect_nodes(a, b, trust=Pinned(c.node_id)))
            # No honest peer would send this: an event that can't be decrypted.
            back.driver.received(b"\0\0\0\x40" + bytes(64))
            await eventually(lambda: not peer.is_open)
            await failing(lambda: peer.call("echo"))
            shown += all_reprs()
    text = "\n".join([*shown, *map(logged, caplog.records)])
    assert len(secrets.known) > 50
    assert len(shown) > 500
    assert "wrong network MAC" in text
    assert secrets.shown_in(text) == []
    # The search would find a secret.
    one = max(secrets.known)
    assert secrets.shown_in(f"it is {one!r}")
    assert secrets.shown_in(f"it is {one.hex()}")


def serve(node: Node) -> None:
    @node.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data

    @node.on_call("fail")
    async def fail(call: Call) -> None:
        raise ValueError(f"while it served {call!r}")

    @node.on_stream("sink")
    async def sink(stream: Stream) -> None:
        async for _ in stream:
            continue


def logged(record: logging.LogRecord) -> str:
    """Return a log line as a handler writes it, and all values that it was made from."""
    line = logging.Formatter().format(record)
    return f"{line} {record.args!r}"


# Dropped keys.


@pytest.mark.alone
@pytest.mark.parametrize("ending", ["close", "lost", "violation", "refused", "timeout"])
def test_no_key_outlives_its_connection(ending: str) -> None:
    """After a connection has ended, its object contains no keys, even if it ended during a
    rekey.
    """
    witnesses = Witnesses(), Witnesses()
    pair = open_pair(observers=witnesses)
    pair.a.core.send(1, 0, 64, 1, b"x")
    pair.pump()
    pair.b.core.update_keys(pair.now)
    pair.a.core.rekey(pair.now)
    pair.carry(pair.a)
    if ending == "close":
        pair.a.core.close(pair.now)
        pair.pump()
    elif ending == "lost":
        for side in pair.sides:
            side.core.receive_eof(pair.now)
    elif ending == "violation":
        pair.inject(pair.b, 0, 64, 1, b"x")
        pair.pump()
    elif ending == "refused":
        pair.b.core.refuse_peer("not any more", pair.now)
        pair.pump()
    else:
        pair.advance(60.0)
    for side in pair.sides:
        side.reports.clear()
    assert [witness.epochs[True] > 0 for witness in witnesses] == [True, True]
    assert kept_keys(witnesses) == []
    assert {side.core.ended or side.state == "CLOSING" for side in pair.sides} == {True}
