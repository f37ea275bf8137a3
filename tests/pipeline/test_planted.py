"""Simulated journals through the whole pipeline: planted faults are found, without false findings.

One run reads untouched journals and journals in which a forger, which knows only the documents, has
planted faults. The pipeline doesn't get the list of faults.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from parley._node.apps.simulate.tally import count
from parley._pipeline.bronze import ingest
from parley._pipeline.gold.cluster import read_gold
from parley._pipeline.gold.finding_texts import FAULT, UNCHECKED
from parley._pipeline.jobs import refresh
from parley._pipeline.silver import SilverStep, events, sessions
from parley._pipeline.tables import Tables
from parley._pipeline.up_to_date import up_to_date_outcome
from tests.node.apps.simulate.journals import Simulated, make
from tests.node.journal.joined_tunnels import join, server, tunnel_record
from tests.node.journal.memory_journal import RecordedPair
from tests.node.protocol.pair import ALICE, BOB
from tests.pipeline import forger, tunnel_forger

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(240)]

# The finding for each fault, in the journal itself or compared with the other end's.
SHOWN_AS = {
    "bit-flip": {"bad-chain", "bad-seal"},  # the latter where the bit is one of a seal
    "drop": {"gap"},
    "duplicate": {"duplicate"},
    "reorder": {"reordered"},
    "foreign-seal": {"bad-seal"},
    "rechain": {"bad-seal", "differs"},
    "forged-code": {"end-mismatch", "end-differs"},
    "early-end": {"not-received", "not-sent", "end-differs"},
    "bad-crc": {"bad-crc"},
    "missing-segment": {"missing-segment"},
}


TUNNELS_SHOWN_AS = {
    "hidden": ("tunnel-missing", UNCHECKED),
    "more": ("tunnel-differs", FAULT),
    "less": ("tunnel-differs", FAULT),
    "longer": ("tunnel-differs", FAULT),
}


@dataclass
class Result:
    honest: Simulated
    faults: list[forger.Fault]
    tunnels: dict[str, str]  # The change of a server's record, by trace.
    findings: list[Row]
    tables: Tables


def joined(directory: Path) -> None:
    """The journals of two servers, Alice and Bob, that are neighbours in eight tunnels."""
    made = RecordedPair()
    for number in range(8):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
        began = max(journal.time for journal in made.journals) / 1e9
        same = {"trace": bytes([number]) * 16, "length": 4, "began": began, "ended": began + 0.001}
        join(made.journals[0], tunnel_record(**same, hop=1, before=server(1), after=BOB.node_id))
        join(made.journals[1], tunnel_record(**same, hop=2, before=ALICE.node_id, after=server(4)))
    for _ in range(20):  # So that both journals continue after all of them.
        made.pair.a.core.send(1, 0, 64, 1, b"", lbm=False)
        made.pump()
    made.run(0.05)
    made.end()
    directory.mkdir()
    for journal in made.journals:
        for stem, data in journal.segments.items():
            (directory / f"{stem}.pjl").write_bytes(data)


def make_more(directory: Path) -> Path:
    """Add an unread segment: a copy of another run's."""
    path = next(directory.glob("*.pjl"))
    node, _, number = path.name.split("-")
    more = directory / f"{node}-20990101T000000000000Z-{number}"
    more.write_bytes(path.read_bytes())
    return more


@pytest.fixture(scope="module")
def result(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Result:
    place = tmp_path_factory.mktemp("planted")
    honest = make(place / "journals" / "honest")
    forged = make(place / "journals" / "forged")
    faults: list[forger.Fault] = []
    for kind in forger.KINDS:
        if kind == "torn-tail":
            continue  # a notice: a crash leaves the same
        avoid = frozenset(fault.session for fault in faults if fault.session)
        faults.append(forger.forge(forged.directory, kind, seed=11, avoid=avoid))
    keys = [one.key.private_bytes() for one in (honest, forged)]
    joined(place / "journals" / "tunnels")
    hop = tunnel_forger.forge(place / "journals" / "tunnels", BOB.node_id.text)
    tables = Tables(spark, str(place / "tables"))
    ingest(spark, str(place / "journals" / "*"), tables.root, steps=[SilverStep(keys)])
    refresh(tables)
    found = read_gold(spark, tables.root, "findings")
    assert found is not None
    # All data was ingested, which is known without Spark.
    assert up_to_date_outcome(str(place / "journals" / "*"), tables.root) is not None
    more = make_more(place / "journals" / "honest")
    assert up_to_date_outcome(str(place / "journals" / "*"), tables.root) is None
    more.unlink()
    return Result(honest, faults, hop, found.collect(), tables)


def test_each_planted_fault_is_found(result: Result) -> None:
    for fault in result.faults:
        kinds = {
            finding.kind
            for finding in result.findings
            if finding.weight == FAULT
            and (
                fault.session is None
                or (finding.session == fault.session)
                or finding.segment == fault.file.removesuffix(".pjl")
            )
        }
        assert kinds & SHOWN_AS[fault.kind], fault


def test_what_a_server_says_of_a_tunnel_is_held_against_its_neighbour(result: Result) -> None:
    found = {
        finding.evidence.split()[1].strip(":,"): (finding.kind, finding.weight)
        for finding in result.findings
        if finding.kind.startswith("tunnel-")
    }
    assert found == {trace: TUNNELS_SHOWN_AS[kind] for trace, kind in result.tunnels.items()}
    assert set(result.tunnels.values()) == set(tunnel_forger.KINDS)


def test_nothing_is_invented(result: Result) -> None:
    touched = {fault.session for fault in result.faults}
    # A whole segment that is gone concerns all sessions of its node, at both ends.
    nodes = [fault.file[:52] for fault in result.faults if fault.session is None]
    theirs = sessions(result.tables).where(
        f.col("local_node").isin(nodes) | f.col("remote_node").isin(nodes)
    )
    touched |= {row.session for row in theirs.select("session").distinct().collect()}
    for finding in result.findings:
        if finding.weight == FAULT and not finding.kind.startswith("tunnel-"):
            assert finding.session in touched or finding.journal in nodes, finding


def test_honest_journals_have_all_their_events_and_no_fault(result: Result) -> None:
    counts = count(result.honest.directory)
    wanted = {
        (node, direction): number
        for node, numbers in counts.events.items()
        for direction, number in numbers.items()
    }
    rows = events(result.tables).where("place > 0 and item = 0 and coalesce(inside, 0) = 0")
    found = {
        (row.journal, row.direction): row["count"]
        for row in rows.groupBy("journal", "direction").count().collect()
        if row.journal in counts.events
    }
    assert found == wanted
    faults = [
        finding
        for finding in result.findings
        if finding.weight == FAULT and finding.journal in counts.events
    ]
    assert faults == []
