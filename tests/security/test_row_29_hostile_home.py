"""Row 29, a hostile home: it can withhold statements from its accounts, but not hide a succession
from a node that meets the successor, and not make a node store anything that is not true.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import pytest

from parley import Identity, Node, create_revocation, create_succession
from parley._lbm import keys
from parley.errors import NotTrustedError, StatementError
from tests.security.forgery import content_of, part_of, statement

pytestmark = pytest.mark.anyio
NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)

OWNER, RECOVERY = Identity.create_recoverable()
NEW, _ = Identity.create_recoverable()
HOME, OF_HOME = Identity.create_recoverable()
TRUE: Final = create_succession(RECOVERY, NEW)


async def test_a_withheld_succession_is_learnt_from_the_successor() -> None:
    """The client has no statement, and no node but the successor tells it."""
    client = Node(Identity.create())
    async with client, Node(NEW) as new:
        new.statements.apply(TRUE.encoded)
        await new.listen("memory://new")
        peer = await client.connect(f"memory://new#{OWNER.node_id}")
        assert peer.node_id == NEW.node_id
        assert peer.predecessors == (OWNER.node_id,)
        assert client.statements.table.has_ended(OWNER.node_id)


async def test_a_home_cannot_take_the_place_of_its_account() -> None:
    """It answers in the place of the node that was dialled, and presents what it can make."""
    own = create_succession(OF_HOME, NEW)
    client = Node(Identity.create())
    async with client, Node(HOME) as home:
        home.statements.apply(TRUE.encoded)
        home.statements.apply(own.encoded)
        await home.listen("memory://home")
        with pytest.raises(NotTrustedError):
            await client.connect(f"memory://home#{OWNER.node_id}")
        assert not client.statements.table.stored


def _to_home() -> bytes:
    """Return a succession to the home, signed by the home in place of the recovery key."""
    content = content_of(OWNER, HOME, OF_HOME.key)
    return statement(content, OF_HOME.key, HOME.keys[0])


def _redirected() -> bytes:
    """Return the true statement with the home as successor."""
    content = content_of(OWNER, HOME, RECOVERY.key)
    changed = {keys.SIGNATURE: part_of(TRUE.encoded, keys.SIGNATURE)}
    return statement(content, OF_HOME.key, HOME.keys[0], changed=changed)


def _of_other() -> bytes:
    """Return a true statement about an ID that nobody asked for."""
    return create_revocation(Identity.create()).encoded


@pytest.mark.parametrize(
    ("answer", "result"),
    [(_to_home, "signer"), (_redirected, "signature"), (_of_other, "not-on-record")],
)
def test_an_invented_answer_stores_nothing(answer: Callable[[], bytes], result: str) -> None:
    node = Node(Identity.create(), watch=[OWNER.node_id])
    try:
        offered = str(node.connections.offer_statement(answer()))
    except StatementError as error:
        offered = error.reason
    assert offered == result
    assert not node.statements.table.stored
