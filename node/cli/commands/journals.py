"""Commands for journals: keys, audits, the pipeline, and simulated data."""

from typing import Final

import click

from parley._node.cli.commands.declare import (
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

DIRECTORY: Final = argument("directory", "DIR", type=PATH, help="Where the segments are.")
AUDITOR_KEY: Final = option(
    "--auditor-key",
    metavar="FILE",
    type=PATH,
    multiple=True,
    help="An auditor's key file, as keygen writes it; repeatable. Without one nothing is "
    "decrypted.",
)
NODE: Final = option(
    "--node",
    metavar="ID",
    help="Only this node's: its id, or the beginning of it. Default: all in DIR.",
)
TABLES: Final = option(
    "--tables",
    metavar="DIR",
    required=True,
    help="Where the tables are; all of Spark's workers see it.",
)
MASTER: Final = option(
    "--master",
    metavar="URL",
    help="Where Spark runs, as spark-submit has it. Default: local[*], here.",
)
REMOTE: Final = option(
    "--remote", metavar="sc://HOST:PORT", help="A Spark Connect server, in place of --master."
)
MEMORY: Final = option(
    "--memory", metavar="SIZE", default="2g", help="Of the driver's Java, if it is started here."
)
JOURNALS: Final = option(
    "--journals",
    metavar="DIR",
    required=True,
    help="Where the journals are: a directory, or a pattern of some.",
)
NO_PAYLOADS: Final = flag("--no-payloads", help="Keep no payloads in the tables.")

SIMULATE: Final = command(
    "simulate",
    "simulate:simulation",
    "Run nodes with made-up traffic in simulated time, and keep their journals.",
    option(
        "--journals",
        metavar="DIR",
        type=PATH,
        required=True,
        help="Where the journals go; made if it is not there.",
    ),
    option("--nodes", type=click.IntRange(min=2, max=1000), default=3, help="How many nodes."),
    option("--minutes", type=Number(), default=1.0, help="Simulated minutes, above 0."),
    option(
        "--seed",
        type=int,
        default=0,
        help="The same seed gives the same traffic; keys are always new.",
    ),
    option(
        "--auditor",
        metavar="KEY",
        help="The auditor's public key. Default: that of auditor.key beside DIR, made if it is "
        "not there.",
    ),
    option(
        "--segment-size",
        metavar="BYTES",
        type=int,
        default=67108864,
        help="Size at which a segment is closed.",
    ),
    option(
        "--rate", type=Number(), default=1.0, section="Traffic", help="Times the usual traffic."
    ),
    option(
        "--traffic",
        type=click.Choice(["calls", "topics", "files", "events", "keys", "faults"]),
        multiple=True,
        section="Traffic",
        help="Only this; repeatable. Default: all.",
    ),
    option(
        "--payload",
        metavar="BYTES",
        type=click.IntRange(min=0, max=524288),
        section="Traffic",
        help="Data of each call and note; calls are simple then. Default: many sizes.",
    ),
    option(
        "--burst",
        type=click.IntRange(min=1, max=4096),
        section="Traffic",
        help="Notes published at once. Default: mostly one, at times many.",
    ),
    option(
        "--latency",
        metavar="SECONDS",
        type=Number(),
        default=0.005,
        section="Traffic",
        help="From node to node.",
    ),
    flag(
        "--one-suite",
        section="Traffic",
        help="All nodes prefer the same algorithms, and sign with Ed25519.",
    ),
    LOOP,
    JSON,
    examples=("parley simulate --nodes 4 --minutes 2 --journals journals",),
)

JOURNAL_KEYGEN: Final = command(
    "keygen",
    "journal.keys:keygen",
    "Make an auditor's key pair: a private key file, and the public key that nodes are told.",
    option(
        "--out",
        metavar="FILE",
        type=FILE,
        default="auditor.key",
        help="Where the private key goes.",
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
    flag("--sessions", help="Each session too."),
    flag("--tunnels", help="Each tunnel that the node joined too."),
    JSON,
    examples=("parley journal inspect journals --sessions",),
)

JOURNAL_VERIFY: Final = command(
    "verify",
    "journal.verify:verify",
    "Verify the journals in a directory; exit 7 if there are findings.",
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
    "Write the journals in a directory, verified: events, sessions, tunnels and findings.",
    DIRECTORY,
    option(
        "--out",
        "out_directory",
        metavar="DIR",
        type=PATH,
        default="journal-rows",
        help="Where the files go; made if need be.",
    ),
    option(
        "--to", type=click.Choice(["parquet"]), default="parquet", help="The form of the files."
    ),
    AUDITOR_KEY,
    AUDITOR_PASSPHRASE,
    NODE,
    option("--payloads/--no-payloads", default=True, help="Whether they are in the rows."),
    JSON,
    examples=("parley journal export journals --out rows --auditor-key auditor.key",),
)

JOURNAL_PRUNE: Final = command(
    "prune",
    "journal.prune:prune",
    "Remove the oldest segments of the journals in a directory; never one that is written.",
    DIRECTORY,
    option("--older-than", metavar="TIME", help="Those that ended longer ago, such as 30d or 12h."),
    option(
        "--max-size", metavar="SIZE", help="The oldest, until all have at most this much: 10GB."
    ),
    flag("--dry-run", help="Remove nothing, only say."),
    JSON,
    examples=("parley journal prune journals --older-than 30d --dry-run",),
)

PIPELINE_RUN: Final = command(
    "run",
    "pipeline:run",
    "Make tables of journals: what is new since the last run.\n\nSpark is started only if there "
    "is something new. Silver that is missing or damaged is made again from bronze.",
    JOURNALS,
    TABLES,
    AUDITOR_KEY,
    AUDITOR_PASSPHRASE,
    NO_PAYLOADS,
    flag("--rebuild", help="Remove the tables and make them again from the journals."),
    MASTER,
    REMOTE,
    MEMORY,
    JSON,
    examples=("parley pipeline run --journals journals --tables tables --auditor-key auditor.key",),
)

PIPELINE_FOLLOW: Final = command(
    "follow",
    "pipeline:follow",
    "Make tables of journals while they are written, until it is stopped.\n\nWaits for a "
    "directory of journals that is not there yet.",
    JOURNALS,
    TABLES,
    AUDITOR_KEY,
    AUDITOR_PASSPHRASE,
    NO_PAYLOADS,
    option(
        "--every",
        type=Number(min=0.1),
        default=2.0,
        help="Seconds from one batch to the next, at least.",
    ),
    option(
        "--refresh",
        type=Number(min=1),
        default=60.0,
        help="Seconds between two updates of the gold tables.",
    ),
    MASTER,
    REMOTE,
    MEMORY,
    JSON,
    examples=("parley pipeline follow --journals journals --tables tables --refresh 60",),
)

PIPELINE_REPORT: Final = command(
    "report",
    "pipeline:report",
    "Write the report of the tables as one HTML page.\n\nSpark is started only if this machine "
    "does not see the tables. Nodes have the names that they have among your known peers.",
    TABLES,
    option("--html", metavar="FILE", type=PATH, required=True, help="The page to write."),
    MASTER,
    REMOTE,
    MEMORY,
    option(
        "--rows",
        type=click.IntRange(min=1, max=100000),
        default=2000,
        help="Rows of a table, at the most.",
    ),
    flag("--without-events", help="Sessions without their events: much sooner made."),
    JSON,
    examples=("parley pipeline report --tables tables --html report.html",),
)

JOURNAL_COMMANDS: Final = group(
    "journal",
    "Make an auditor's keys; look at, check, export and prune journals.",
    JOURNAL_KEYGEN,
    JOURNAL_INSPECT,
    JOURNAL_VERIFY,
    JOURNAL_EXPORT,
    JOURNAL_PRUNE,
    moved={"key": "parley id show"},
)

PIPELINE_COMMANDS: Final = group(
    "pipeline",
    "From journals to tables and a report, on Apache Spark.",
    PIPELINE_RUN,
    PIPELINE_FOLLOW,
    PIPELINE_REPORT,
)
