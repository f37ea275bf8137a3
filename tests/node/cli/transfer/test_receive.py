"""Tests of node/cli/transfer/receive.py: a person is asked about each new sender once."""

from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._crypto.statements import create_succession
from parley._node.apps.transfer.protocol import FileOffer, RefusalCode
from parley._node.apps.transfer.receiver import FileReceiver
from parley._node.apps.transfer.sender import Source, send_file
from parley._node.apps.transfer.store import FileStore
from parley._node.cli.output import Output
from parley._node.cli.transfer import receive as strangers_module
from parley._node.cli.transfer.display import Display
from parley._node.cli.transfer.receive import SenderConsent
from parley._node.errors import CallRefused
from parley._node.testing import ConnectedNodes
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.words import fingerprint
from tests.node.cli.terminals import at_terminal
from tests.node.network import meeting, settled

pytestmark = pytest.mark.anyio


def strangers(known: KnownPeers, *, as_json: bool = False) -> SenderConsent:
    out = Output(as_json)
    return SenderConsent(out, known, Display(out, "<-").paused)


def offer(name: str = "a") -> FileOffer:
    return FileOffer(name, 1_234, bytes(32))


@pytest.fixture
def known(tmp_path: Path) -> KnownPeers:
    return KnownPeers(tmp_path / "known_peers")


async def test_a_yes_puts_the_sender_on_record(anyio_backend: str, known: KnownPeers) -> None:
    async with meeting() as met:
        with at_terminal() as terminal:
            asking = strangers(known)
            async with terminal.answered("yes\n"):
                assert await asking.welcome(met.back, offer("report.pdf"))
            assert await asking.welcome(met.back, offer())  # is not asked again
            shown = terminal.read()
        who = met.client.node_id
        assert "An unknown sender wants to send report.pdf (1,234 bytes)." in shown
        assert str(who) in shown
        assert fingerprint(who) in " ".join(shown.split())
        assert shown.count("[yes/no]") == 1
        assert known.lookup(who) is not None
        assert await strangers(known).welcome(met.back, offer())


async def test_a_no_holds(anyio_backend: str, known: KnownPeers) -> None:
    async with meeting() as met:
        with at_terminal() as terminal:
            asking = strangers(known)
            async with terminal.answered("no\n"):
                assert not await asking.welcome(met.back, offer())
            assert not await asking.welcome(met.back, offer())
            assert terminal.read().count("[yes/no]") == 1
        assert len(known) == 0


async def test_files_that_come_together_are_one_question(
    anyio_backend: str, known: KnownPeers
) -> None:
    async with meeting() as met:
        with at_terminal() as terminal:
            asking, answers = strangers(known), []

            async def come() -> None:
                answers.append(await asking.welcome(met.back, offer()))

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(come)
                await settled()
                assert answers == []
                terminal.type("y\n")
            assert answers == [True] * 3
            assert terminal.read().count("[yes/no]") == 1


async def test_without_a_terminal_the_answer_is_no(
    anyio_backend: str, known: KnownPeers, capsys: pytest.CaptureFixture[str]
) -> None:
    async with meeting() as met:
        asking = strangers(known)
        assert not await asking.welcome(met.back, offer())
        assert not await asking.welcome(met.back, offer())
        words = fingerprint(met.client.node_id)
        line = f"parley: refused files from unknown sender {met.client.node_id} ({words}): there"
        assert capsys.readouterr().err.startswith(line)
        assert len(known) == 0  # the user did not accept


async def test_known_peers_are_not_asked_about(
    anyio_backend: str, known: KnownPeers, capsys: pytest.CaptureFixture[str]
) -> None:
    async with meeting() as met:
        known.add(met.client.node_id, None, datetime.now(UTC))
        assert await strangers(known).welcome(met.back, offer())
        assert capsys.readouterr().err == ""


async def test_the_successor_of_a_known_peer_is_not_asked_about(
    anyio_backend: str, known: KnownPeers, capsys: pytest.CaptureFixture[str]
) -> None:
    old, now = Identity.create(), datetime.now(UTC)
    async with meeting() as met:
        known.add(old.node_id, "bob", now)
        assert not await strangers(known).welcome(met.back, offer())
        capsys.readouterr()
        met.server.statements.apply(create_succession(old, met.client.identity).encoded)
        met.server.statements.decide(old.node_id, met.client.node_id)
        assert await strangers(known).welcome(met.back, offer())
        assert capsys.readouterr().err == ""


async def test_a_question_about_others_holds_no_known_peer_up(
    anyio_backend: str, known: KnownPeers
) -> None:
    async with meeting() as stranger, meeting() as friend:
        known.add(friend.client.node_id, None, datetime.now(UTC))
        with at_terminal():
            asking = strangers(known)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asking.welcome, stranger.back, offer())
                await settled()
                with anyio.fail_after(5):
                    assert await asking.welcome(friend.back, offer())
                tasks.cancel_scope.cancel()


async def test_json_is_no_person(anyio_backend: str, known: KnownPeers) -> None:
    async with meeting() as met:
        with at_terminal():
            assert not await strangers(known, as_json=True).welcome(met.back, offer())


async def test_who_proves_no_id_is_never_on_record(anyio_backend: str, known: KnownPeers) -> None:
    async with meeting(plaintext="only") as met:
        with at_terminal() as terminal:
            async with terminal.answered("yes\n"):
                assert await strangers(known).welcome(met.back, offer())
            assert "A sender without an ID wants to send a" in terminal.read()
        assert len(known) == 0


async def test_so_many_answers_are_remembered(
    anyio_backend: str, known: KnownPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers_module, "REMEMBERED", 5)
    asking = strangers(known)
    async with meeting() as met:
        for number in range(5):
            asking.answers[str(number)] = True
        await asking.welcome(met.back, offer())
        assert list(asking.answers) == ["1", "2", "3", "4", str(met.client.node_id)]


async def declined(met: ConnectedNodes, path: Path) -> int:
    with await Source.open(path) as source, pytest.raises(CallRefused) as error:
        await send_file(met.peer, source)
    assert error.value.data == "no files are taken from you"
    return error.value.code


async def test_a_sender_who_is_not_wanted_is_told(anyio_backend: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a").write_bytes(b"a")
    async with meeting() as met:
        with FileStore(tmp_path / "in") as store:

            async def nobody(peer: object, offer: FileOffer) -> bool:
                return False

            FileReceiver(store, welcome=nobody).offer_on(met.server)
            assert await declined(met, tmp_path / "a") == RefusalCode.DECLINED
        assert list((tmp_path / "in").iterdir()) == []
