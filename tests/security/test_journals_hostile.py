"""What a peer may do to the journal of the node it talks to (docs/threat-model.md, J6)."""

from node.journal import keys
from node.journal.records import OK, read_records
from node.journal.session_log import LONGEST_LABEL
from node.journal.sessions import Checkpoint
from tests.node.journal.recorded import AUDITOR, Recorded, audit_of

HUGE = 2**20 - 256


def test_labels_of_a_peer_make_no_checkpoint_that_readers_refuse() -> None:
    """70 of them would be longer than any record, 20 than what is decoded of one."""
    made = Recorded()
    opened = made.pair.b.core.open_stream("topic:kept")
    for _ in range(20):
        made.pair.b.core.open_stream("x" * HUGE)
    made.pair.b.core.open_stream("x" * LONGEST_LABEL)
    made.pump()
    made.journals[0].next_segment()
    made.pair.b.core.send(opened, 0, 64, 1, b"after", lbm=False)
    made.pump()
    made.end()
    _, second = made.journals[0].segments.items()
    records = list(read_records(second[1]))
    assert {record.status for record in records} == {OK}
    [checkpoint] = [record for record in records if record.kind == keys.CHECKPOINT]
    assert len(Checkpoint.parse(checkpoint.body).labels or b"") < 2 * LONGEST_LABEL
    audit = audit_of(dict([second]), AUDITOR)
    assert audit.take_findings() == []
    assert "kept" in {row[17] for row in audit.take_events()}
