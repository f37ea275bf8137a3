"""Row 30, a member or peer that offers statements without end: they cost little, evict nothing, and
don't keep an ID alive.

tests/node/trust/test_statement_table.py covers the limits of the table. Here, a node with real
files is flooded.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from parley import Identity, Node, Statement, create_revocation, create_succession
from parley._node.trust.statement_table import MAX_STEPS
from parley.errors import StatementError
from parley.trust import FirstUse, KeyStatements, KnownPeers
from tests.security.forgery import content_of, statement

NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)
FRIEND = Identity.create()


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Statement]:
    """The statements whose signatures were verified."""
    found: list[Statement] = []
    verify = Statement.verify

    def counting(self: Statement) -> None:
        found.append(self)
        verify(self)

    monkeypatch.setattr(Statement, "verify", counting)
    return found


def first_use_server(path: Path, seen: list[Identity]) -> Node:
    """Return a server that has seen these nodes on incoming connections, and knows a friend."""
    known = KnownPeers(path / "known_peers")
    known.add(FRIEND.node_id, "friend", NOW)
    for one in seen:
        known.add(one.node_id, None, NOW)
    statements = KeyStatements(path / "key_statements")
    statements.refresh()
    return Node(Identity.create(), trust=FirstUse(known), statements=statements)


def test_a_flood_of_ended_ids_evicts_no_end_and_leaves_room_for_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over restarts, and by IDs that were recorded by first use."""
    limit = 24
    monkeypatch.setattr("parley._node.trust.statement_table.MAX_UNNAMED", limit)
    victim, *flood = seen = [Identity.create() for _ in range(limit + 8)]
    server = first_use_server(tmp_path, seen)
    assert server.connections.offer_statement(create_revocation(victim).encoded) == "stored"
    for start in range(0, len(flood), 8):
        server = first_use_server(tmp_path, [])  # a restart
        for one in flood[start : start + 8]:
            server.connections.offer_statement(create_revocation(one).encoded)
    table = server.statements.table
    assert len(table.stored) == limit
    assert table.has_ended(victim.node_id)
    assert server.connections.offer_statement(create_revocation(FRIEND).encoded) == "stored"
    assert first_use_server(tmp_path, []).statements.table.has_ended(FRIEND.node_id)


def test_unknown_ids_and_repetitions_cost_no_signature(verified: list[Statement]) -> None:
    """Neither do statements with many signatures and times over one meaning."""
    owner, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    strangers = [create_revocation(Identity.create()).encoded for _ in range(100)]
    same = [
        statement(content_of(owner, new, recovery.key, made_ms=ms), recovery.key, new.keys[0])
        for ms in range(100)
    ]
    server = Node(Identity.create(), watch=[owner.node_id])
    verified.clear()
    offers = [server.connections.offer_statement(one) for one in (*strangers, *same)]
    assert offers == ["not-on-record"] * 100 + ["stored"] + ["known"] * 99
    assert len(verified) == 1
    assert len(server.statements.table.stored) == 1


def test_a_tree_of_successors_is_stored_as_a_path() -> None:
    root = Identity.create_recoverable()
    server = Node(Identity.create(), watch=[root[0].node_id])
    level = [root]
    for _ in range(MAX_STEPS + 3):
        following = []
        for identity, recovery in level:
            server.connections.offer_statement(create_revocation(identity).encoded)
            for successor in (Identity.create_recoverable() for _ in range(3)):
                offered = create_succession(recovery, successor[0])
                if server.connections.offer_statement(offered.encoded) == "stored":
                    following.append(successor)
        level = following
    assert 3 <= len(server.statements.table.stored) <= 3 * (MAX_STEPS + 1)


def test_a_long_path_is_followed_for_eight_steps() -> None:
    chain = [Identity.create_recoverable() for _ in range(2 * MAX_STEPS)]
    server = Node(Identity.create(), watch=[chain[0][0].node_id])
    offers = [
        server.connections.offer_statement(create_succession(recovery, new).encoded)
        for (_, recovery), (new, _) in pairwise(chain)
    ]
    assert offers == ["stored"] * (MAX_STEPS + 1) + ["not-on-record"] * (MAX_STEPS - 2)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory in which no file can be written."""
    if os.geteuid() == 0:
        # Root may write anywhere, but a file isn't a directory.
        blocked = tmp_path / "file"
        blocked.touch()
        yield blocked
        return
    tmp_path.chmod(0o500)
    yield tmp_path
    tmp_path.chmod(0o700)


def test_a_full_disk_does_not_keep_an_id_alive(full_disk: Path) -> None:
    owner = Identity.create()
    statements = KeyStatements(full_disk / "key_statements")
    server = Node(Identity.create(), watch=[owner.node_id], statements=statements)
    assert server.connections.offer_statement(create_revocation(owner).encoded) == "stored"
    assert server.statements.table.has_ended(owner.node_id)


def test_a_wrong_signature_is_dropped_and_the_right_statement_stored_later() -> None:
    """A statement that libraries judge differently must not keep the true one away."""
    owner = Identity.create()
    wrong = bytearray(create_revocation(owner).encoded)
    wrong[-2] ^= 1
    server = Node(Identity.create(), watch=[owner.node_id])
    with pytest.raises(StatementError):
        server.connections.offer_statement(bytes(wrong))
    assert server.connections.offer_statement(create_revocation(owner).encoded) == "stored"
