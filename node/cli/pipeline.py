"""`parley pipeline`: turn journals into tables, tables into a page, and start a Spark cluster.

Each record is in the tables exactly once, even if `run` and `follow` are repeated or killed. The
first signal ends `follow` after the current batch, with complete tables. The second ends it
immediately, and the next run repeats the unfinished batch.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from types import FrameType
from typing import Final

from parley._node.cli.journal.keys import read_auditor_keys
from parley._node.cli.output import Output
from parley._node.cli.spark_session import (
    are_journals_small,
    gold_store,
    journals_exist,
    lock_tables,
    remove_tables_at,
    spark_session,
    unchanged_outcome,
    without_extra,
)
from parley._node.cli.terminal import show_stage, show_stages
from parley._node.errors import FileError, UnreachableError
from parley._node.trust.known_peers import KnownPeers, default_known_peers

_PATIENCE: Final = 0.2  # seconds between checks for the directory


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """The options of `parley pipeline run` and `follow`."""

    journals: str
    tables: str
    auditor_key: list[Path] | None
    passphrase_file: Path | None
    no_payloads: bool
    master: str | None
    remote: str | None
    memory: str
    as_json: bool
    rebuild: bool = False
    every: float = 2.0
    refresh: float = 60.0


def run(given: PipelineOptions) -> None:
    out = Output(given.as_json)
    keys = [
        key.private_bytes() for key in read_auditor_keys(given.auditor_key, given.passphrase_file)
    ]
    with lock_tables(given.journals, given.tables, given.remote), show_stages(out) as stage:
        if given.rebuild:
            stage("removing the tables")
            remove_tables_at(given.tables, given.remote)
        stage("searching for new records")
        outcome = unchanged_outcome(given.journals, given.tables, given.remote)
        if outcome is None:
            brief = are_journals_small(given.journals)
            stage("starting Spark")
            with spark_session(given.master, given.remote, given.memory, brief=brief) as spark:
                from parley._pipeline.jobs import run as run_job

                outcome = run_job(
                    spark,
                    given.journals,
                    given.tables,
                    keys,
                    payloads=not given.no_payloads,
                    stage=stage,
                )
                stage("stopping Spark")
    statuses = ", ".join(f"{count:,} {status}" for status, count in outcome.events.most_common())
    out.print(f"{outcome.events.total():,} events and notes ({statuses or 'none'})")
    if outcome.findings:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in outcome.findings.most_common())
        out.print(f"{outcome.findings.total():,} findings: {kinds}")
    else:
        out.print("no findings")
    if not keys:
        out.print("payloads were not decrypted: give --auditor-key")
    out.done(
        events=outcome.events.total(),
        statuses=outcome.events,
        findings=outcome.findings.total(),
        kinds=outcome.findings,
        decrypted=bool(keys),
    )


def follow(given: PipelineOptions) -> None:
    out = Output(given.as_json)
    keys = [
        key.private_bytes() for key in read_auditor_keys(given.auditor_key, given.passphrase_file)
    ]

    def refreshed() -> None:
        out.print("the tables are up to date")
        out.event("refreshed")

    with _stop() as stop:
        _wait_for(given.journals, given.remote, stop, out)
    if stop.is_set():
        out.done()
        return
    with ExitStack() as ending:
        ending.enter_context(lock_tables(given.journals, given.tables, given.remote))
        with show_stage(out, "starting Spark"):
            spark = ending.enter_context(spark_session(given.master, given.remote, given.memory))
        # Set after Spark starts, because Spark installs its own SIGINT handler.
        stop = ending.enter_context(_stop())
        from parley._pipeline.jobs import follow as follow_job

        out.print("following; Ctrl-C stops")
        out.event("following")
        follow_job(
            spark,
            given.journals,
            given.tables,
            keys,
            payloads=not given.no_payloads,
            every=given.every,
            refresh_every=given.refresh,
            stopped=stop.is_set,
            refreshed=refreshed,
            during=partial(show_stage, out),
        )
        with show_stage(out, "stopping Spark"):
            ending.close()
    out.done()


def report(
    tables: str,
    html: Path,
    master: str | None,
    remote: str | None,
    memory: str,
    rows: int,
    without_events: bool,
    as_json: bool,
) -> None:
    out = Output(as_json)
    if not html.parent.is_dir():
        raise FileError(
            f"cannot write the page '{html}': the directory {html.parent} does not exist"
        )
    with show_stages(out) as stage, gold_store(tables, master, remote, memory, stage) as store:
        from parley._pipeline.report.page import write_report

        write_report(
            store,
            html,
            names=_known_names(),
            rows=rows,
            without_events=without_events,
            stage=stage,
        )
    out.print(f"wrote {html}")
    out.done(html=str(html), size=html.stat().st_size)


def cluster(workers: int, cores: int, memory: str, as_json: bool) -> None:
    out = Output(as_json)
    try:
        from parley._pipeline.local_cluster import local_cluster
    except ImportError as error:
        raise without_extra(error) from error
    with _stop() as stop, ExitStack() as ending:
        place = ending.enter_context(TemporaryDirectory(prefix="parley-cluster-"))
        with show_stage(out, "starting Spark"):
            made = ending.enter_context(
                local_cluster(
                    Path(place), workers=workers, cores=cores, memory=memory, stopped=stop.is_set
                )
            )
        out.print(f"started a master and {workers} workers, each with {cores} cores and {memory}")
        out.print(f"web page: {made.page}")
        out.print("to use the cluster, run in another terminal:")
        out.print(f"  export SPARK_CONF_DIR={made.configuration}")
        out.print(f"  parley pipeline run --master {made.master} --journals .. --tables ..")
        out.print("Ctrl-C stops")
        pids = {name: process.pid for name, process in made.processes.items()}
        configuration = str(made.configuration)
        out.event(
            "started", master=made.master, page=made.page, configuration=configuration, pids=pids
        )
        ended: set[str] = set()
        while not stop.is_set():
            for name in sorted(set(made.ended()) - ended):
                ended.add(name)
                out.print(f"the {name} has ended")
                out.event("ended", name=name)
            if "master" in ended:
                raise UnreachableError("cannot continue the Spark cluster: its master has ended")
            sleep(_PATIENCE)
    out.done()


def _known_names() -> dict[str, str]:
    """Return the names of known peers, except addresses, by node id."""
    return {
        str(peer.node_id): name
        for peer in KnownPeers(default_known_peers())
        for name in [next((one for one in peer.names if "://" not in one), None)]
        if name is not None
    }


def _wait_for(journals: str, remote: str | None, stop: "_Stop", out: Output) -> None:
    if journals_exist(journals, remote):
        return
    out.print(f"waiting for {journals}, which does not exist yet; Ctrl-C stops")
    out.event("waiting")
    while not (stop.is_set() or journals_exist(journals, remote)):
        sleep(_PATIENCE)


class _Stop:
    """Set by the first signal; a second signal raises KeyboardInterrupt as usual."""

    def __init__(self) -> None:
        self._asked = False

    def is_set(self) -> bool:
        return self._asked

    def ask(self, number: int, frame: FrameType | None) -> None:
        # Don't raise here: the main thread may be in the middle of a message to Spark's Java.
        self._asked = True
        for either in (signal.SIGINT, signal.SIGTERM):
            signal.signal(either, signal.default_int_handler)


@contextmanager
def _stop() -> Iterator[_Stop]:
    stop = _Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
