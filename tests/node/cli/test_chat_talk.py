"""Tests of node/cli/chat.py: no line that was typed is lost without a word."""

import json

import pytest

from parley._crypto.identity import Identity
from parley._crypto.statements import create_revocation, create_succession
from parley._node.apps.chat.messages import Person
from parley._node.cli import chat as talk_module
from parley._node.cli.chat import Conversation, Screen, Standing
from parley._node.cli.output import Output
from parley._node.errors import PeerClosedError, UnreachableError, received_refusal
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.trust.key_statements import KeyStatements

pytestmark = pytest.mark.anyio

ME = Person(Identity.create().node_id, "ann")
LOST = PeerClosedError(CloseCode.CONNECTION_LOST)


@pytest.mark.parametrize(
    ("error", "event", "line"),
    [
        (
            UnreachableError("not in the room for 30 s"),
            {
                "event": "refused",
                "code": 3,
                "kind": "result",
                "text": "cannot send 'hello': not in the room for 30 s",
            },
            "! cannot send 'hello': not in the room for 30 s",
        ),
        (
            LOST,
            {"event": "unanswered", "text": "hello", "error": str(LOST)},
            f"! may not have been delivered: hello ({LOST})",
        ),
        (
            received_refusal(ResultCode.DEADLINE_EXCEEDED, None),
            {
                "event": "unanswered",
                "text": "hello",
                "error": "the deadline passed (code 17, deadline-exceeded)",
            },
            "! may not have been delivered: hello (the deadline passed (code 17, "
            "deadline-exceeded))",
        ),
        (
            received_refusal(ResultCode.OVERLOADED, "at most 20 messages in 10 s"),
            {
                "event": "refused",
                "code": 19,
                "kind": "result",
                "text": "at most 20 messages in 10 s",
            },
            "! at most 20 messages in 10 s",
        ),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
async def test_what_could_not_be_said(
    anyio_backend: str,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    event: dict[str, object],
    line: str,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(talk_module, "_PATIENCE", 0.0)

    async def say(text: str) -> None:
        raise error

    out = Output(as_json)
    standing = Standing(ME.node_id, None, (), KeyStatements())
    talk = Conversation(out, Screen(out, 0), ME.node_id, standing, lambda: [ME], say)
    await talk.send("hello")
    printed = capsys.readouterr().out
    assert json.loads(printed) == event if as_json else printed == f"{line}\n"
    assert talk.unsaid == 1


async def test_lines_of_a_file_wait_for_a_room_that_limits_their_rate(
    anyio_backend: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk_module, "_PAUSE", 0.001)
    refusals, said = [received_refusal(ResultCode.OVERLOADED, "too many")] * 3, []

    async def say(text: str) -> None:
        if refusals:
            raise refusals.pop()
        said.append(text)

    out = Output(False)
    standing = Standing(ME.node_id, None, (), KeyStatements())
    talk = Conversation(out, Screen(out, 0), ME.node_id, standing, lambda: [ME], say)
    await talk.send("hello")
    assert (said, talk.unsaid) == (["hello"], 0)
    assert capsys.readouterr().out == ""


def test_a_known_person_is_followed_until_its_id_ends() -> None:
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    bob, successor = Person(old.node_id, "bob"), Person(new.node_id, "bob")
    statements = KeyStatements()
    standing = Standing(ME.node_id, {new.node_id}, [old.node_id], statements)
    assert (standing(bob), standing(successor)) == ("told", "new")
    statements.apply(create_succession(recovery, new).encoded)
    assert (standing(bob), standing(successor)) == ("new", "verified")
    statements.decide(old.node_id, None)
    assert (standing(bob), standing(successor)) == ("new", "new")
    statements.decide(old.node_id, new.node_id)
    statements.apply(create_revocation(new).encoded)
    assert (standing(bob), standing(successor)) == ("new", "new")
