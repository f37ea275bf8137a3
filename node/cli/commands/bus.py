"""Commands of `parley bus`."""

from typing import Any, Final

import click

from parley._node.cli.commands.framework import (
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
    help="sqlite:///FILE, redis://HOST:PORT/DB, or the address or @NAME of a node that offers a "
    "bus.",
)
NAME: Final = argument("name", "NAME", help="Name of the event, API.EVENT.")
ANY_GROUP: Final = option("--group", help="Only this consumer group. Default: all.")
GROUP: Final = option("--group", required=True, help="Name of the consumer group.")
IDS: Final = argument(
    "ids", "IDS", required=False, nargs=-1, help="IDs of dead letters, as `dlq list` shows them."
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
    "Publish one or more events and print their IDs.",
    BUS,
    NAME,
    argument("data", "JSON", required=False, help="Data of the event, a JSON object. Default: {}."),
    option(
        "--field",
        metavar="NAME=VALUE",
        multiple=True,
        help="One field of the data; the value is JSON or text. Repeatable.",
    ),
    flag(
        "--json-lines",
        help="Publish each line of standard input as an event; each is a JSON object.",
    ),
    option("--key", help="Idempotency key: repeated publishes with the same key store one event."),
    option(
        "--durable/--no-durable",
        default=True,
        help="Wait until the event is on disk before printing its ID.",
    ),
    examples=(
        'parley bus publish sqlite:///bus.db auth.user_registered \'{"username": "admin"}\'',
    ),
)

BUS_CONSUME: Final = node_command(
    "consume",
    "bus.consume:consume",
    "Consume the events of a group: print them, or run a command for each.",
    BUS,
    NAME,
    GROUP,
    option(
        "--count", type=click.IntRange(min=1), help="Exit after this many events. Default: never."
    ),
    option(
        "--idle", metavar="TIME", help="Exit when no event has arrived for this long, such as 5s."
    ),
    option(
        "--batch",
        type=click.IntRange(min=1),
        help="Number of events to fetch at once. Default: 100, with --exec 1.",
    ),
    option(
        "--start",
        default="first",
        completes=("first", "new"),
        help="Where a new group starts: first, new, an ID, a time (2026-01-31T12:00Z), or an age "
        "(2h).",
    ),
    option(
        "--exec",
        "command",
        metavar="COMMAND",
        help="Run COMMAND for each event, with the event as JSON on standard input; exit code 0 "
        "acknowledges it.",
    ),
    option(
        "--max-attempts",
        type=click.IntRange(min=1),
        default=5,
        help="Failed attempts after which an event becomes a dead letter.",
    ),
    option(
        "--retry-delay",
        metavar="TIME",
        default="1s",
        help="Delay before an event is redelivered after COMMAND failed; doubles each time.",
    ),
    option(
        "--reclaim-after",
        metavar="TIME",
        default="60s",
        help="Take over events of consumers that have been silent for this long.",
    ),
    option(
        "--consumer",
        default="",
        help="Name of this consumer; a fixed name lets it continue its own events immediately.",
    ),
    options_class="bus.consume:ConsumeOptions",
    examples=("parley bus consume sqlite:///bus.db auth.user_registered --group mailer",),
)

BUS_TAIL: Final = node_command(
    "tail",
    "bus.stream:tail",
    "Print the stored events of a stream, and with --follow new ones. Doesn't consume them.",
    BUS,
    NAME,
    option(
        "--start",
        completes=("first", "new"),
        help="Where to start: first, new, an ID, a time (2026-01-31T12:00Z), or an age (2h). "
        "Default: first; with --follow new.",
    ),
    flag("--follow", "-f", help="Continue with new events until interrupted."),
    option(
        "--count",
        type=click.IntRange(min=1),
        help="Exit after this many events.",
    ),
    examples=("parley bus tail sqlite:///bus.db auth.user_registered --start 2h",),
)

BUS_GROUPS: Final = node_command(
    "groups",
    "bus.groups:groups",
    "Show the groups of one event or of all events: lag, pending events, dead letters.",
    BUS,
    argument("name", "NAME", required=False, help="Only this event. Default: all."),
    ANY_GROUP,
    flag("--consumers", help="Also show each consumer."),
    option(
        "--max",
        "most",
        type=click.IntRange(min=0),
        help="Exit with 7 if a group has more than this many unacknowledged events (lag plus "
        "pending), or if their number is unknown.",
    ),
    examples=(
        "parley bus groups sqlite:///bus.db",
        "parley bus groups sqlite:///bus.db auth.user_registered",
    ),
)

BUS_DLQ_LIST: Final = node_command(
    "list",
    "bus.dead_letters:list_dead",
    "List the dead letters of an event, with group and reason.",
    BUS,
    NAME,
    ANY_GROUP,
    option("--count", type=click.IntRange(min=1), help="Show at most this many, oldest first."),
    examples=("parley bus dlq list sqlite:///bus.db auth.user_registered",),
)

BUS_DLQ_REPLAY: Final = node_command(
    "replay",
    "bus.dead_letters:replay_dead",
    "Requeue dead letters to the groups that rejected them and reset their attempt counts.",
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
    "Delete dead letters. They cannot be replayed afterwards.",
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
    "Move a group's position in an event's stream, backward or forward.",
    BUS,
    NAME,
    GROUP,
    option(
        "--start",
        required=True,
        completes=("first", "new"),
        help="The new position: first, new (skip all stored events), an ID, a time "
        "(2026-01-31T12:00Z), or an age (2h).",
    ),
    examples=("parley bus replay sqlite:///bus.db auth.user_registered --group mailer --start 2h",),
)

BUS_TRIM: Final = node_command(
    "trim",
    "bus.stream:trim",
    "Delete the oldest events of a stream, whether read or not.",
    BUS,
    NAME,
    option("--max-length", type=click.IntRange(min=0), help="Keep at most this many events."),
    option(
        "--max-age",
        metavar="TIME",
        help="Keep events that are at most this old, such as 7d or 12h.",
    ),
    option("--before", metavar="ID-OR-TIME", help="Keep this event and all later ones."),
    option("--max-bytes", metavar="SIZE", help="Keep at most this many bytes, such as 500MB."),
    examples=("parley bus trim sqlite:///bus.db auth.user_registered --max-age 7d",),
)

BUS_BACKUP: Final = command(
    "backup",
    "bus.backup:backup",
    "Copy a SQLite bus, even while it is in use, and verify the copy.",
    BUS_FILE,
    argument("file", "FILE", type=PATH, help="The file to write. It must not exist."),
    JSON,
    examples=("parley bus backup sqlite:///bus.db bus-backup.db",),
)

BUS_RESTORE: Final = command(
    "restore",
    "bus.backup:restore",
    "Replace a SQLite bus with a backup while no process uses it. The former bus is renamed, not "
    "deleted.",
    argument("file", "FILE", type=PATH, help="A backup from `parley bus backup`."),
    BUS_FILE,
    JSON,
    examples=("parley bus restore bus-backup.db sqlite:///bus.db",),
)

BUS_COMMANDS: Final = group(
    "bus",
    "Publish and consume events of a durable bus, and maintain it.",
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
