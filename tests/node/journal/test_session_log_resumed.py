"""Sessions that are cut and resumed, with a journal on both sides: an auditor sees no gap."""

from random import Random  # noqa: TID251 - chooses where to cut

import pytest

from parley._node.journal.audit.rows import EVENT_COLUMNS, STATUS_AT, SessionRow
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of
from tests.node.protocol.cut_pair import CutPair, resumed
from tests.node.protocol.pair import Pair, Side, make_config

CUTS = 12
AT = {name: EVENT_COLUMNS.index(name) for name in ("direction", "place", "digest")}


class CutRecorded(RecordedPair):
    """A pair that resumes its sessions, each with a journal."""

    pair: CutPair

    def meet(self) -> Pair:
        configs = [
            make_config(identity, resume=30.0, rekey_allowance=4) for identity in self._identities
        ]
        self.logs = observers = self.journals[0].observer(), self.journals[1].observer()
        self.pair = CutPair(configs[0], configs[1], observers=observers)
        self.pump()
        return self.pair

    def cut_within(self, sender: Side, random: Random) -> None:
        """Deliver a part of the data that a side sends, then end the transport."""
        sent = sender.take(self.pair.now)
        self.pair.deliver(self.pair.other(sender), sent[: random.randint(0, len(sent))])
        self.pair.cut()


def made(seed: int) -> CutRecorded:
    """Send events of both sides and two rekeys, with 12 cuts.

    Blocks and ends of segments come before, between and after them.
    """
    random, rec = Random(seed), CutRecorded()
    for number in range(CUTS):
        for side in rec.pair.sides:
            for _ in range(random.randint(1, 20)):
                side.core.send(1, 0, 64, 1, random.randbytes(random.randint(0, 90)), lbm=False)
        if number % 5 == 2:
            rec.pair.a.core.rekey(rec.pair.now)
        rec.cut_within(random.choice(rec.pair.sides), random)
        for journal in rec.journals:
            step = random.choice([journal.roll, journal.next_segment, None])
            if step is not None:
                step()
        rec.pair.b.core.send(1, 0, 64, 1, b"said while it was parted", lbm=False)
        if number % 3 == 0:
            rec.pair.ask()  # A Resume event that never arrives.
        assert rec.pair.come_back().outcome == "resumed"
        rec.run(random.random())
    rec.run(0.05)  # For the last seals.
    rec.end()
    return rec


def changes(rows: list[SessionRow]) -> list[tuple[str, int | None]]:
    return [(row.what, row.resumption) for row in rows if row.what in ("parted", "resumed")]


@pytest.mark.parametrize("seed", range(3))
def test_an_audit_of_a_session_that_was_cut_and_resumed(seed: int) -> None:
    rec = made(seed)
    digests = []
    for journal, side in zip(rec.journals, rec.pair.sides, strict=True):
        audit = audit_of(journal.segments, AUDITOR)
        assert audit.take_findings() == []
        rows = audit.take_events()
        assert {row[STATUS_AT] for row in rows} == {"ok"}
        reported = changes(audit.take_sessions())
        assert reported == [
            one for n in range(1, CUTS + 1) for one in (("parted", None), ("resumed", n))
        ]
        assert resumed(side) == list(range(1, CUTS + 1))
        by_way: dict[str, list[bytes]] = {"received": [], "sent": []}
        for row in sorted(rows, key=lambda row: row[AT["place"]]):
            by_way[row[AT["direction"]]].append(row[AT["digest"]])
        digests.append(by_way)
    ours, theirs = digests
    assert ours["sent"] == theirs["received"]
    assert ours["received"] == theirs["sent"]
    assert len(ours["sent"]) > CUTS


def test_session_that_ends_while_suspended() -> None:
    rec = CutRecorded()
    rec.pair.a.core.send(1, 0, 64, 1, b"x", lbm=False)
    rec.run(0.1)
    rec.pair.cut()
    rec.pair.advance(61)
    for journal in rec.journals:
        journal.log.end()
        audit = audit_of(journal.segments, AUDITOR)
        assert audit.take_findings() == []
        rows = audit.take_sessions()
        assert [row.what for row in rows] == ["start", "parted", "end"]
        assert rows[-1].code == -1
