"""Row 28, both keys stolen: the thief fills the places of an ID before the owner does. A person can
still store the statement of the owner, and decides.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from parley import Identity, Node, NodeId, create_revocation, create_succession
from parley.errors import IdentityEndedError
from parley.trust import KeyStatements

pytestmark = pytest.mark.anyio
NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)

OWNER, RECOVERY = Identity.create_recoverable()
NEW, _ = Identity.create_recoverable()
OF_OWNER: Final = create_succession(RECOVERY, NEW)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node that watches the owner, and has stored all that the thief can make."""
    statements = KeyStatements(tmp_path / "key_statements")
    node = Node(Identity.create(), watch=[OWNER.node_id], statements=statements)
    results = [
        node.connections.offer_statement(create_succession(RECOVERY, successor).encoded)
        for successor, _ in (Identity.create_recoverable() for _ in range(3))
    ]
    results.append(node.connections.offer_statement(create_revocation(OWNER).encoded))
    assert results == ["stored", "stored", "full", "stored"]
    return node


def successor_of(path: Path) -> NodeId | None:
    """Return the owner's successor by the file, as another process reads it."""
    statements = KeyStatements(path)
    statements.refresh()
    return statements.table.successor_of(OWNER.node_id)


async def test_neither_successor_of_the_thief_is_trusted(node: Node) -> None:
    async with node:
        with pytest.raises(IdentityEndedError, match="two successors"):
            await node.connect(f"memory://owner#{OWNER.node_id}")


def test_a_person_stores_and_chooses_the_owner_s_statement(node: Node, tmp_path: Path) -> None:
    assert node.connections.offer_statement(OF_OWNER.encoded) == "full"
    node.statements.apply(OF_OWNER.encoded)
    assert node.successor_of(OWNER.node_id) is None
    node.statements.decide(OWNER.node_id, NEW.node_id)
    assert node.successor_of(OWNER.node_id) == NEW.node_id
    assert successor_of(tmp_path / "key_statements") == NEW.node_id
    # The thief can make no further statement that is stored, and none would change the choice.
    late = create_succession(RECOVERY, Identity.create_recoverable()[0])
    assert node.connections.offer_statement(late.encoded) == "full"
    assert node.successor_of(OWNER.node_id) == NEW.node_id


def test_a_person_can_refuse_all(node: Node, tmp_path: Path) -> None:
    node.statements.decide(OWNER.node_id, None)
    assert node.successor_of(OWNER.node_id) is None
    assert node.statements.table.has_ended(OWNER.node_id)
    assert successor_of(tmp_path / "key_statements") is None
