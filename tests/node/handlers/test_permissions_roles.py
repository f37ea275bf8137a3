"""Tests of where roles come from: assigned, a file, a function."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import Call, CallRefused, NodeId, ResultCode
from parley._crypto.identity import Identity
from parley._node.errors import FileError
from parley._node.handlers.permissions import MAX_FILE_SIZE, Roles, read_roles
from tests.node.network import meeting

ALICE, BOB = Identity.create().node_id, Identity.create().node_id
ADMIN = frozenset({"admin"})


def test_a_file_gives_roles(tmp_path: Path) -> None:
    file = tmp_path / "roles"
    file.write_text(f"# who may do what\n\n{ALICE} admin  reader\n  {BOB}\treader\n{ALICE} writer")
    assert read_roles(file) == {ALICE: {"admin", "reader", "writer"}, BOB: {"reader"}}


def test_what_is_loaded_takes_the_place_of_what_was(tmp_path: Path) -> None:
    file, roles = tmp_path / "roles", Roles()
    roles.assign(ALICE, "guest")
    file.write_text(f"{ALICE} admin\n")
    roles.load(file)
    assert roles.of(ALICE) == {"guest", "admin"}
    roles.revoke(ALICE)  # The assigned roles, without those in the file.
    assert roles.of(ALICE) == ADMIN
    file.write_text(f"{BOB} admin\n")
    roles.load(file)
    assert (roles.of(ALICE), roles.of(BOB)) == (frozenset(), ADMIN)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("alice admin", r"line 1: "),
        (f"#\n{ALICE}", "line 2: no roles follow the node ID"),
        (f"{ALICE} admin {BOB}", "line 1: invalid role"),
        (b"\xff\xfe", "is not UTF-8"),
        ("#" * (MAX_FILE_SIZE + 1), "has more than 1,048,576 bytes"),
        (None, "cannot read .*: No such file or directory"),
    ],
    ids=["name", "no-roles", "id-as-role", "bytes", "large", "absent"],
)
def test_a_file_that_is_wrong_changes_nothing(tmp_path: Path, content: Any, sentence: str) -> None:
    file, roles = tmp_path / "roles", Roles()
    file.write_text(f"{ALICE} admin\n")
    roles.load(file)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FileError, match=sentence):
        roles.load(file)
    assert roles.of(ALICE) == ADMIN


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "roles"
    line = f"{ALICE} admin\n"
    file.write_text(line + "#" * (MAX_FILE_SIZE - len(line)))
    assert read_roles(file) == {ALICE: ADMIN}


@pytest.mark.anyio
async def test_a_function_is_asked_for_what_is_not_known_here() -> None:
    roles, asked = Roles(), []

    async def tell(node_id: NodeId) -> Iterable[str]:
        asked.append(node_id)
        await anyio.lowlevel.checkpoint()
        return ["admin"] if node_id == ALICE else []

    roles.ask(tell)
    roles.assign(BOB, "reader")
    assert await roles.include(ADMIN, ALICE, 0.0)
    assert not await roles.include(ADMIN, BOB, 0.0)
    assert await roles.include(frozenset({"reader"}), BOB, 0.0)
    assert asked == [ALICE, BOB]
    roles.ask(None)
    assert not await roles.include(ADMIN, ALICE, 0.0)


@pytest.mark.anyio
@pytest.mark.parametrize("answer", ["admin", ("admin",), {"admin", "x"}])
async def test_a_plain_function_and_one_role_alone_will_do(answer: Any) -> None:
    roles = Roles()
    roles.ask(lambda node_id: answer)
    assert await roles.include(ADMIN, ALICE, 0.0)
    assert not await roles.include(frozenset({"a", "adm"}), ALICE, 0.0)


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [None, 5, KeyError("x")])
async def test_one_that_fails_gives_no_roles(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    def tell(node_id: NodeId) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    roles = Roles()
    roles.ask(tell)
    roles.assign(ALICE, "reader")
    assert not await roles.include(ADMIN, ALICE, 0.0)
    assert await roles.include(frozenset({"reader"}), ALICE, 0.0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    for _ in range(150):
        await roles.include(ADMIN, ALICE, 0.0)
    assert len(caplog.records) == 100


@pytest.mark.anyio
async def test_peers_have_the_rights_of_their_roles_from_wherever(tmp_path: Path) -> None:
    async with meeting() as met:
        for topic in ("by file", "by function", "by nobody"):

            @met.server.on_call(topic, allow=topic)
            async def echo(call: Call) -> Any:
                return call.data

        file = tmp_path / "roles"
        file.write_text(f"{met.client.node_id} by-file by\n")
        with pytest.raises(CallRefused):
            await met.peer.call("by file", 1)
        met.server.roles.load(file)
        met.server.roles.ask(lambda node_id: ["by function", "by file"])
        assert await met.peer.call("by file", 1) == 1
        assert await met.peer.call("by function", 2) == 2
        with pytest.raises(CallRefused) as refused:
            await met.peer.call("by nobody")
        assert refused.value.code == ResultCode.NOT_AUTHORISED
