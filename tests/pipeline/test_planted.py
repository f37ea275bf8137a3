"""Simulated journals through the whole pipeline: what was planted is found, nothing is invented.

One run for all: journals that nobody touched, such as `parley simulate --tamper` leaves, and
such as a forger had who knows only the documents. The pipeline knows nothing of the lists.
"""

from dataclasses import dataclass

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from node.apps.simulate.tally import count
from node.apps.simulate.tamper.plant import tamper
from node.apps.simulate.tamper.planted import Fault, Planted
from pipeline.bronze import ingest
from pipeline.gold.findings import FAULT
from pipeline.gold.findings import findings as gold_findings
from pipeline.silver import SilverStep, events, findings, sessions
from pipeline.tables import Tables
from tests.node.apps.simulate.journals import Simulated, make
from tests.pipeline import forger

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(240)]

# How each shows itself, in the journal itself or beside the other end's.
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


SHOWN_AS["forged-end"] = SHOWN_AS["forged-code"] | SHOWN_AS["early-end"]
TAMPERED = [kind for kind in Fault if kind not in (Fault.TORN_TAIL, Fault.BAD_CRC)]


@dataclass
class Result:
    honest: Simulated
    faults: list[forger.Fault | Planted]
    findings: list[Row]
    tables: Tables


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
    listed = make(place / "journals" / "listed")
    told = tamper(listed.directory, TAMPERED, seed=3)
    keys = [one.key.private_bytes() for one in (honest, forged, listed)]
    tables = Tables(spark, str(place / "tables"))
    ingest(spark, str(place / "journals" / "*"), tables.root, steps=[SilverStep(keys)])
    silver = events(tables), sessions(tables), findings(tables)
    return Result(honest, [*faults, *told], gold_findings(*silver).collect(), tables)


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


def test_nothing_is_invented(result: Result) -> None:
    touched = {fault.session for fault in result.faults}
    # A whole segment that is gone concerns all sessions of its node, at both ends.
    nodes = [fault.file[:52] for fault in result.faults if fault.session is None]
    theirs = sessions(result.tables).where(
        f.col("local_node").isin(nodes) | f.col("remote_node").isin(nodes)
    )
    touched |= {row.session for row in theirs.select("session").distinct().collect()}
    for finding in result.findings:
        if finding.weight == FAULT:
            assert finding.session in touched or finding.journal in nodes, finding


def test_honest_journals_have_all_their_events_and_no_fault(result: Result) -> None:
    counts = count(result.honest.directory)
    wanted = {
        (node, direction): number
        for node, numbers in counts.events.items()
        for direction, number in numbers.items()
    }
    rows = events(result.tables).where("place > 0 and item = 0")
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
