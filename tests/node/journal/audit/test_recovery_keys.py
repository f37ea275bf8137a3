"""The audit of sessions between identities with recovery keys: node IDs of the second form."""

from parley._crypto.identity import Identity
from tests.node.journal.audit.audit_helpers import Audited
from tests.node.journal.memory_journal import RecordedPair, records_of


def test_the_audit_computes_ids_of_the_second_form() -> None:
    alice, _ = Identity.create_recoverable()
    bob, _ = Identity.create_recoverable(("ed25519", "ecdsa-p256"))
    made = RecordedPair(identities=(alice, bob))
    made.pair.a.core.send(1, 0, 64, 1, b"hello", lbm=False)
    made.pump()
    made.end()
    audited = Audited(records_of(made.journals[1].segments))
    assert audited.findings == []
    ids = {(row.local_node, row.remote_node) for row in audited.sessions}
    assert ids == {(bob.node_id.text, alice.node_id.text)}
