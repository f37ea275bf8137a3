"""Commands of `parley bus`."""

from typing import Any, Final

import click

from parley._node.cli.commands.declare import (
    PATH,
    argument,
    command,
    flag,
    group,
    load,
    option,
)
from parley._node.cli.commands.shared import (
    JSON,
    node_command,
)


def _check_bus(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    return value and load("bus.format:check_bus_address")(value)


BUS: Final = argument(
    "bus",
    "BUS",
    callback=_check_bus,
    completes="completion.suggestions:bus_addresses",
    help="sqlite:///FILE, redis://HOST:PORT/DB, or of a node that offers one: its address, or "
    "@NAME of a context or a known peer.",
)
NAME: Final = argument("name", "NAME", help="Of which event: API.EVENT.")
ANY_GROUP: Final = option("--group", help="Only this group's. Default: all groups'.")
GROUP: Final = option("--group", required=True, help="The group of consumers.")
IDS: Final = argument(
    "ids", "IDS", required=False, nargs=-1, help="Ids of dead letters, as list shows them."
)
EVERY: Final = flag("--all", "every", help="All dead letters of the event.")
BUS_FILE: Final = argument(
    "bus",
    "BUS",
    callback=_check_bus,
    completes="completion.suggestions:bus_files",
    help="The bus in a file: sqlite:///FILE.",
)

BUS_PUBLISH: Final = node_command(
    "publish",
    "bus.publish:publish",
    "Publish an event, or many, and print the ids.",
    BUS,
    NAME,
    argument("data", "JSON", required=False, help="The data, one object. Default: {}."),
    option(
        "--field",
        metavar="NAME=VALUE",
        multiple=True,
        help="One field of the data, its value JSON or else text; repeatable.",
    ),
    flag("--json-lines", help="One event for each line of standard input, an object."),
    option("--key", help="Idempotency key: published twice with it, it is one event."),
    option("--durable/--no-durable", default=True, help="Whether to wait until it is on disk."),
    examples=(
        'parley bus publish sqlite:///bus.db auth.user_registered \'{"username": "admin"}\'',
    ),
)

BUS_CONSUME: Final = node_command(
    "consume",
    "bus.consume:consume",
    "Take the events of a group and print them, or run a command for each.",
    BUS,
    NAME,
    GROUP,
    option(
        "--count", type=click.IntRange(min=1), help="End after this many events; default: never."
    ),
    option("--idle", metavar="TIME", help="End when nothing has come for this long, such as 5s."),
    option(
        "--batch",
        type=click.IntRange(min=1),
        help="Events to fetch at once. Default: 100; with --exec 1.",
    ),
    option(
        "--start",
        default="first",
        completes=("first", "new"),
        help="first, new, an id, a time (2026-01-31T12:00Z), or how long ago (2h).",
    ),
    option(
        "--exec",
        "command",
        metavar="COMMAND",
        help="Run it for each event, the event as JSON on its standard input; exit code 0 "
        "acknowledges.",
    ),
    option(
        "--max-attempts",
        type=click.IntRange(min=1),
        default=5,
        help="Then an event goes to the dead letters.",
    ),
    option(
        "--retry-delay",
        metavar="TIME",
        default="1s",
        help="Until an event at which COMMAND failed is handed out again; twice as long each time.",
    ),
    option(
        "--reclaim-after",
        metavar="TIME",
        default="60s",
        help="Take over what others held without a sign for this long.",
    ),
    option(
        "--consumer",
        default="",
        help="The name of this consumer; one that stays finds what it left at once.",
    ),
    examples=("parley bus consume sqlite:///bus.db auth.user_registered --group mailer",),
)

BUS_TAIL: Final = node_command(
    "tail",
    "bus.stream:tail",
    "Print the events that are stored, and with --follow those to come; takes no group.",
    BUS,
    NAME,
    option(
        "--start",
        completes=("first", "new"),
        help="first, new, an id, a time (2026-01-31T12:00Z), or how long ago (2h). Default: "
        "first; with --follow new.",
    ),
    flag("--follow", "-f", help="Go on with what is published."),
    option(
        "--count",
        type=click.IntRange(min=1),
        help="End after this many events; default: at the end.",
    ),
    examples=("parley bus tail sqlite:///bus.db auth.user_registered --start 2h",),
)

BUS_GROUPS: Final = node_command(
    "groups",
    "bus.groups:groups",
    "Show the groups of an event, or all events and groups: lag, pending, dead letters.",
    BUS,
    argument("name", "NAME", required=False, help="Only of this event. Default: of all."),
    ANY_GROUP,
    flag("--consumers", help="Each consumer too."),
    option(
        "--max",
        "most",
        type=click.IntRange(min=0),
        help="Exit with 7 if a group has more events that it has not acknowledged (lag and "
        "pending together), or if the number is unknown.",
    ),
    examples=(
        "parley bus groups sqlite:///bus.db",
        "parley bus groups sqlite:///bus.db auth.user_registered",
    ),
)

BUS_DLQ_LIST: Final = node_command(
    "list",
    "bus.dead_letters:list_dead",
    "Show the dead letters of an event: which, of which group, and why.",
    BUS,
    NAME,
    ANY_GROUP,
    option("--count", type=click.IntRange(min=1), help="Show at most this many, the oldest."),
    examples=("parley bus dlq list sqlite:///bus.db auth.user_registered",),
)

BUS_DLQ_REPLAY: Final = node_command(
    "replay",
    "bus.dead_letters:replay_dead",
    "Hand dead letters to the groups in which they died once more, with attempts anew.",
    BUS,
    NAME,
    IDS,
    EVERY,
    ANY_GROUP,
    examples=("parley bus dlq replay sqlite:///bus.db auth.user_registered --all",),
)

BUS_DLQ_DROP: Final = node_command(
    "drop",
    "bus.dead_letters:drop_dead",
    "Forget dead letters; what is dropped cannot be replayed.",
    BUS,
    NAME,
    IDS,
    EVERY,
    ANY_GROUP,
    examples=("parley bus dlq drop sqlite:///bus.db auth.user_registered --all",),
)

BUS_REPLAY: Final = node_command(
    "replay",
    "bus.groups:replay",
    "Have a group read an event's stream from another place on, be it back or forth.",
    BUS,
    NAME,
    GROUP,
    option(
        "--start",
        required=True,
        completes=("first", "new"),
        help="From where on: first, new (nothing that is there), an id, a time "
        "(2026-01-31T12:00Z), or how long ago (2h).",
    ),
    examples=("parley bus replay sqlite:///bus.db auth.user_registered --group mailer --start 2h",),
)

BUS_TRIM: Final = node_command(
    "trim",
    "bus.stream:trim",
    "Throw the oldest events of a stream away, whether they were read or not.",
    BUS,
    NAME,
    option("--max-length", type=click.IntRange(min=0), help="Keep the newest, at most this many."),
    option("--max-age", metavar="TIME", help="Keep what is not older, such as 7d or 12h."),
    option("--before", metavar="ID-OR-TIME", help="Keep this one and what follows it."),
    option(
        "--max-bytes", metavar="SIZE", help="Keep the newest, at most this much, such as 500MB."
    ),
    examples=("parley bus trim sqlite:///bus.db auth.user_registered --max-age 7d",),
)

BUS_BACKUP: Final = command(
    "backup",
    "bus.backup:backup",
    "Copy a bus in a file, also while it is in use; the copy is one file and was checked.",
    BUS_FILE,
    argument("file", "FILE", type=PATH, help="The file to write; it must not exist."),
    JSON,
    examples=("parley bus backup sqlite:///bus.db bus-backup.db",),
)

BUS_RESTORE: Final = command(
    "restore",
    "bus.backup:restore",
    "Put a backup in the place of a bus that no process uses; the bus that was there is kept.",
    argument("file", "FILE", type=PATH, help="What parley bus backup wrote."),
    BUS_FILE,
    JSON,
    examples=("parley bus restore bus-backup.db sqlite:///bus.db",),
)

BUS_COMMANDS: Final = group(
    "bus",
    "Publish and consume events of a durable bus; look after it.",
    BUS_PUBLISH,
    BUS_CONSUME,
    BUS_TAIL,
    BUS_GROUPS,
    group(
        "dlq",
        "Dead letters: list, replay or drop them.",
        BUS_DLQ_LIST,
        BUS_DLQ_REPLAY,
        BUS_DLQ_DROP,
    ),
    BUS_REPLAY,
    BUS_TRIM,
    BUS_BACKUP,
    BUS_RESTORE,
    moved={"lag": "parley bus groups"},
)
