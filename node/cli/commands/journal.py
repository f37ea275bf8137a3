"""Commands for journals: keys, audits, the pipeline, and simulated data."""

from typing import Final

import click

from parley._node.cli.commands.framework import (
    FILE,
    PATH,
    Number,
    argument,
    command,
    flag,
    group,
    option,
)
from parley._node.cli.commands.shared import (
    AUDITOR_PASSPHRASE,
    JSON,
    LOOP,
    PASSPHRASE_FILE,
)

DIRECTORY: Final = argument("directory", "DIR", type=PATH, help="Directory of the journals.")

AUDITOR_KEY: Final = option(
    "--auditor-key",
    metavar="FILE",
    type=PATH,
    multiple=True,
    help="An auditor's key file, from `parley journal keygen`; repeatable. Without it, payloads "
    "stay encrypted.",
)

NODE: Final = option(
    "--node",
    metavar="ID",
    help="Only the journal of this node: its ID or a prefix. Default: all in DIR.",
)

TABLES: Final = option(
    "--tables",
    metavar="DIR",
    required=True,
    help="Directory of the tables, visible to all Spark workers.",
)

MASTER: Final = option(
    "--master",
    metavar="URL",
    help="Spark master URL, as for spark-submit. Default: local[*].",
)

REMOTE: Final = option(
    "--remote",
    metavar="sc://HOST:PORT",
    help="Address of a Spark Connect server, instead of --master.",
)

MEMORY: Final = option(
    "--memory",
    metavar="SIZE",
    default="2g",
    help="Memory of the Spark driver, if this command starts it.",
)

JOURNALS: Final = option(
    "--journals",
    metavar="DIR",
    required=True,
    help="Directory of the journals, or a glob pattern.",
)

NO_PAYLOADS: Final = flag("--no-payloads", help="Don't store payloads in the tables.")

SIMULATE: Final = command(
    "simulate",
    "simulate:simulation",
    "Simulate nodes with generated traffic, in simulated time, and write their journals.",
    option(
        "--journals",
        metavar="DIR",
        type=PATH,
        required=True,
        help="Directory for the journals; created if missing.",
    ),
    option("--nodes", type=click.IntRange(min=2, max=1000), default=3, help="Number of nodes."),
    option("--minutes", type=Number(), default=1.0, help="Simulated minutes, more than 0."),
    option(
        "--seed",
        type=int,
        default=0,
        help="Seed of the traffic: the same seed gives the same traffic. Keys are new in each run.",
    ),
    option(
        "--auditor",
        metavar="KEY",
        help="The auditor's public key. Default: the key of the file auditor.key next to DIR, "
        "created if missing.",
    ),
    option(
        "--segment-size",
        metavar="BYTES",
        type=int,
        default=67108864,
        help="Size at which a journal segment is closed.",
    ),
    option(
        "--rate",
        type=Number(),
        default=1.0,
        section="Traffic",
        help="Multiplier of the usual amount of traffic.",
    ),
    option(
        "--traffic",
        type=click.Choice(["calls", "topics", "files", "events", "keys", "faults"]),
        multiple=True,
        section="Traffic",
        help="Generate only this kind of traffic; repeatable. Default: all.",
    ),
    option(
        "--payload",
        metavar="BYTES",
        type=click.IntRange(min=0, max=524288),
        section="Traffic",
        help="Size of each payload; calls then only echo it. Default: various sizes.",
    ),
    option(
        "--burst",
        type=click.IntRange(min=1, max=4096),
        section="Traffic",
        help="Number of notes published together. Default: mostly one, sometimes many.",
    ),
    option(
        "--latency",
        metavar="SECONDS",
        type=Number(),
        default=0.005,
        section="Traffic",
        help="Latency between two nodes.",
    ),
    flag(
        "--one-suite",
        section="Traffic",
        help="Give all nodes the same preferred algorithms and Ed25519 keys.",
    ),
    LOOP,
    JSON,
    options_class="simulate:SimulationOptions",
    examples=("parley simulate --nodes 4 --minutes 2 --journals journals",),
)

JOURNAL_KEYGEN: Final = command(
    "keygen",
    "journal.keys:keygen",
    "Create an auditor's key pair: write the private key file and print the public key.",
    option(
        "--out",
        metavar="FILE",
        type=FILE,
        default="auditor.key",
        help="File for the private key.",
    ),
    PASSPHRASE_FILE,
    JSON,
    examples=("parley journal keygen --out auditor.key",),
)

JOURNAL_INSPECT: Final = command(
    "inspect",
    "journal.inspect:inspect",
    "Show the segments, runs and sessions of the journals in a directory.",
    DIRECTORY,
    NODE,
    flag("--sessions", help="List each session."),
    flag("--tunnels", help="List each tunnel that the node forwarded."),
    JSON,
    examples=("parley journal inspect journals --sessions",),
)

JOURNAL_VERIFY: Final = command(
    "verify",
    "journal.verify:verify",
    "Verify the journals in a directory. Exits with 7 if there are findings.",
    DIRECTORY,
    AUDITOR_KEY,
    AUDITOR_PASSPHRASE,
    NODE,
    JSON,
    examples=("parley journal verify journals --auditor-key auditor.key",),
)

JOURNAL_EXPORT: Final = command(
    "export",
    "journal.export:export",
    "Verify the journals in a directory and export the events and other rows to files.",
    DIRECTORY,
    option(
        "--out",
        "out_directory",
        metavar="DIR",
        type=PATH,
        default="journal-rows",
        help="Directory for the files; created if missing.",
    ),
    option("--to", type=click.Choice(["parquet"]), default="parquet", help="File format."),
    AUDITOR_KEY,
    AUDITOR_PASSPHRASE,
    NODE,
    option("--payloads/--no-payloads", default=True, help="Include payloads."),
    JSON,
    examples=("parley journal export journals --out rows --auditor-key auditor.key",),
)

JOURNAL_PRUNE: Final = command(
    "prune",
    "journal.prune:prune",
    "Delete the oldest closed segments of the journals in a directory.",
    DIRECTORY,
    option(
        "--older-than",
        metavar="TIME",
        help="Delete segments that ended longer ago than this, such as 30d or 12h.",
    ),
    option(
        "--max-size",
        metavar="SIZE",
        help="Delete the oldest segments until the total is at most this, such as 10GB.",
    ),
    flag("--dry-run", help="Show what would be deleted, without deleting it."),
    JSON,
    examples=("parley journal prune journals --older-than 30d --dry-run",),
)

PIPELINE_RUN: Final = command(
    "run",
    "pipeline:run",
    "Update the tables with the new records of the journals.\n\nStarts Spark only if there are "
    "new records. Missing or damaged silver tables are rebuilt from bronze.",
    JOURNALS,
    TABLES,
    AUDITOR_KEY,
    AUDITOR_PASSPHRASE,
    NO_PAYLOADS,
    flag("--rebuild", help="Remove the tables and rebuild them from the journals."),
    MASTER,
    REMOTE,
    MEMORY,
    JSON,
    options_class="pipeline:PipelineOptions",
    examples=("parley pipeline run --journals journals --tables tables --auditor-key auditor.key",),
)

PIPELINE_FOLLOW: Final = command(
    "follow",
    "pipeline:follow",
    "Update the tables continuously while journals are written.\n\nIf the directory of journals "
    "does not exist yet, wait for it.",
    JOURNALS,
    TABLES,
    AUDITOR_KEY,
    AUDITOR_PASSPHRASE,
    NO_PAYLOADS,
    option(
        "--every",
        type=Number(min=0.1),
        default=2.0,
        help="Seconds between batches.",
    ),
    option(
        "--refresh",
        type=Number(min=1),
        default=60.0,
        help="Seconds between updates of the gold tables.",
    ),
    MASTER,
    REMOTE,
    MEMORY,
    JSON,
    options_class="pipeline:PipelineOptions",
    examples=("parley pipeline follow --journals journals --tables tables --refresh 60",),
)

PIPELINE_REPORT: Final = command(
    "report",
    "pipeline:report",
    "Write a report of the tables as one HTML page.\n\nStarts Spark only if the tables are not "
    "on this machine. Nodes have the names of your known peers.",
    TABLES,
    option("--html", metavar="FILE", type=PATH, required=True, help="The page to write."),
    MASTER,
    REMOTE,
    MEMORY,
    option(
        "--rows",
        type=click.IntRange(min=1, max=100000),
        default=2000,
        help="Maximum number of rows of each table.",
    ),
    flag("--without-events", help="Leave out the events of sessions, which is much faster."),
    JSON,
    examples=("parley pipeline report --tables tables --html report.html",),
)

PIPELINE_CLUSTER: Final = command(
    "cluster",
    "pipeline:cluster",
    "Start a standalone Spark cluster on this machine, until interrupted.\n\nIts processes listen "
    "only on 127.0.0.1, authenticate each other and encrypt their connections.",
    option(
        "--workers",
        type=click.IntRange(min=1, max=64),
        default=2,
        help="Number of workers.",
    ),
    option(
        "--cores",
        type=click.IntRange(min=1, max=1024),
        default=1,
        help="Number of cores of each worker.",
    ),
    option(
        "--memory",
        metavar="SIZE",
        default="1g",
        help="Java heap of each worker's executor.",
    ),
    JSON,
    examples=("parley pipeline cluster --workers 2 --memory 1g",),
)

JOURNAL_COMMANDS: Final = group(
    "journal",
    "Create auditors' keys; inspect, verify, export and prune journals.",
    JOURNAL_KEYGEN,
    JOURNAL_INSPECT,
    JOURNAL_VERIFY,
    JOURNAL_EXPORT,
    JOURNAL_PRUNE,
    moved={"key": "parley id show"},
)

PIPELINE_COMMANDS: Final = group(
    "pipeline",
    "Turn journals into tables and a report with Apache Spark.",
    PIPELINE_RUN,
    PIPELINE_FOLLOW,
    PIPELINE_REPORT,
    PIPELINE_CLUSTER,
)
