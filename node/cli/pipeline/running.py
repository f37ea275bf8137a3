"""`parley pipeline run`: takes in what the journals have now, verifies it, makes the tables.

One rule: however often it is run or killed, each record is in the tables once.
"""

from node.cli.journal.arguments import AuditorKeys, KeyPassphrase, read_auditor_keys
from node.cli.options import Json
from node.cli.output import Output
from node.cli.pipeline.session import (
    Journals,
    Master,
    Memory,
    NoPayloads,
    Remote,
    places,
    spark_session,
)
from node.cli.pipeline.session import Tables as TablesDirectory


def run(
    journals: Journals,
    tables: TablesDirectory,
    auditor_key: AuditorKeys = None,
    passphrase_file: KeyPassphrase = None,
    no_payloads: NoPayloads = False,
    master: Master = None,
    remote: Remote = None,
    memory: Memory = "2g",
    as_json: Json = False,
) -> None:
    """Make tables of journals: what is new since the last run, then all of gold."""
    out = Output(as_json)
    keys = [key.private_bytes() for key in read_auditor_keys(auditor_key, passphrase_file)]
    with places(journals, tables, remote), spark_session(master, remote, memory) as spark:
        from pipeline.jobs import run as run_job

        outcome = run_job(spark, journals, tables, keys, payloads=not no_payloads)
    statuses = ", ".join(f"{count:,} {status}" for status, count in outcome.events.most_common())
    out.say(f"{outcome.events.total():,} events and notes ({statuses or 'none'})")
    if outcome.findings:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in outcome.findings.most_common())
        out.say(f"{outcome.findings.total():,} findings: {kinds}")
    else:
        out.say("no findings")
    if not keys:
        out.say("nothing was decrypted: no auditor's key was given")
    out.done(
        events=outcome.events.total(),
        statuses=outcome.events,
        findings=outcome.findings.total(),
        kinds=outcome.findings,
        decrypted=bool(keys),
    )
