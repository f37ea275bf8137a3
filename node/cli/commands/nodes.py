"""Commands that run a node or ask one."""

from typing import Final

import click

from parley._node.cli.commands.declare import PATH, Number, argument, command, flag, group, option
from parley._node.cli.commands.shared import (
    JSON,
    LISTEN,
    node_command,
)

ADDRESS: Final = argument(
    "address",
    "ADDR",
    completes="completion.suggestions:places",
    help="tcp://host:port or unix:///path, best with #NODEID after it; @NAME of a context or a "
    "known peer; left out: of the context in use.",
)
TIMEOUT: Final = option(
    "--timeout", type=Number(), default=10.0, help="Seconds to wait for the answer."
)
CONFIG: Final = option(
    "--config",
    type=PATH,
    help="TOML file with settings; variables PARLEY_NODE_... and PARLEY_SERVE_... go before it, "
    "options before both.",
)
ANNOUNCE: Final = option(
    "--announce/--no-announce",
    default=None,
    help="Announce the node on the local network: everybody there can read its id, "
    "addresses and name. Needs the extra `discovery`.",
)
ANNOUNCE_NAME: Final = option(
    "--announce-name", metavar="NAME", help="What the node calls itself there, at most 63 bytes."
)
METRICS: Final = option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve metrics there by HTTP: /metrics for Prometheus, /healthz, /readyz; port 0 "
    "lets the system choose. Needs the extra `metrics`.",
)
JOURNAL: Final = option(
    "--journal",
    metavar="DIR",
    type=PATH,
    section="Journal",
    help="Keep a journal there; made if need be. Takes --auditor.",
)
AUDITOR: Final = option(
    "--auditor",
    metavar="KEY",
    multiple=True,
    section="Journal",
    help="Key of an auditor that can read it, as parley journal keygen prints it; repeatable.",
)
JOURNAL_FSYNC: Final = option(
    "--journal-fsync",
    completes=("always", "interval", "never"),
    section="Journal",
    help="always, interval or never: when it is forced to the disk. Default: interval.",
)
JOURNAL_ON_FAILURE: Final = option(
    "--journal-on-failure",
    completes=("alarm", "stop"),
    section="Journal",
    help="alarm (go on without) or stop, when it cannot be written. Default: alarm.",
)
CONSOLE: Final = option(
    "--console",
    metavar="HOST:PORT",
    help="Serve the console there, on this machine alone; a link opens it once. Needs the "
    "extra `console`.",
)
ACCESS_LOG: Final = option(
    "--access-log/--no-access-log",
    default=None,
    help="Log connections and refused requests, whatever the level. Default: not below it.",
)
LOG_REQUESTS: Final = option(
    "--log-requests/--no-log-requests",
    default=None,
    help="Log each answered request with its duration, too, whatever the level. Default: not.",
)

SERVE: Final = node_command(
    "serve",
    "serve.command:serve",
    "Listen, answer parley.echo and parley.info, publish parley.clock, until SIGINT or "
    "SIGTERM.\n\nSIGHUP has the settings read again.",
    LISTEN,
    CONFIG,
    option(
        "--forward",
        metavar="TOPIC=ADDR",
        multiple=True,
        help="Publish a topic of the node at ADDR here as well; repeatable. A lost link is "
        "dialled again within 30 s. Without a node id in ADDR the node has to be on "
        "record, or --trust decides.",
    ),
    ANNOUNCE,
    ANNOUNCE_NAME,
    METRICS,
    option(
        "--simproto",
        multiple=True,
        section="Other dialects (nothing is encrypted there)",
        help="Speak SimProto at tcp://host:port or unix:///path; repeatable.",
    ),
    option(
        "--named",
        multiple=True,
        section="Other dialects (nothing is encrypted there)",
        help="Speak named events, as the crate bromine does, there; repeatable.",
    ),
    option(
        "--named-flavour",
        completes=("plain", "typed"),
        section="Other dialects (nothing is encrypted there)",
        help="plain (bromine 0.14 to 0.17) or typed (from 0.18 on). Default: plain.",
    ),
    option(
        "--relay",
        multiple=True,
        section="Other dialects (nothing is encrypted there)",
        help="Relay messages between clients that are known by a UUID, there; repeatable.",
    ),
    option(
        "--bridge",
        metavar="TOPIC",
        section="Other dialects (nothing is encrypted there)",
        help="Publish the relay's broadcasts as notes of this topic, and broadcast its notes.",
    ),
    flag(
        "--allow-insecure",
        section="Other dialects (nothing is encrypted there)",
        help="Allow --simproto, --named and --relay at addresses that other machines can "
        "reach, although nothing is encrypted there.",
    ),
    JOURNAL,
    AUDITOR,
    JOURNAL_FSYNC,
    JOURNAL_ON_FAILURE,
    option(
        "--bus",
        metavar="URL",
        completes="completion.suggestions:bus_files",
        section="Durable bus",
        help="Offer the bus there to other nodes: sqlite:///FILE, redis://HOST:PORT/DB.",
    ),
    option(
        "--bus-allow",
        metavar="RIGHT",
        multiple=True,
        section="Durable bus",
        help="Who may do what: NODEID=publish+consume:EVENTS[:GROUPS], also inspect and manage; "
        "* for anybody or anything; repeatable. Default: nobody.",
    ),
    option(
        "--link",
        metavar="ADDR",
        multiple=True,
        section="Federation of servers",
        help="Keep a link with the server there; ADDR has its node id; repeatable.",
    ),
    option(
        "--member",
        metavar="NODEID",
        multiple=True,
        section="Federation of servers",
        help="Take the cards of this server too, and let it link here; repeatable.",
    ),
    option(
        "--carry",
        metavar="NODEID",
        multiple=True,
        section="Federation of servers",
        help="Let tunnels of this server go on through this one; repeatable. Default: nobody's.",
    ),
    option(
        "--export",
        metavar="PATTERN",
        multiple=True,
        section="Federation of servers",
        help="What peers that come through a tunnel may ask for, as shop.*; repeatable. "
        "Default: nothing.",
    ),
    option(
        "--follow",
        metavar="PATTERN",
        multiple=True,
        section="Federation of servers",
        help="Topics elsewhere that accounts read with this server's right; repeatable. "
        "Default: none.",
    ),
    option(
        "--accounts",
        metavar="WHO",
        completes=("off", "known", "any"),
        section="Federation of servers",
        help="Who may have an account: off, known, any, or node ids with commas. Default: off.",
    ),
    CONSOLE,
    ACCESS_LOG,
    LOG_REQUESTS,
    examples=(
        "parley serve --identity bob.key --listen tcp://127.0.0.1:4747",
        "parley serve --config parley.toml",
    ),
)

RUN: Final = node_command(
    "run",
    "serve.command:run_application",
    "Serve the node of a module, or one that its function is given, until SIGINT or "
    "SIGTERM.\n\nSIGHUP has the settings read again.",
    argument(
        "target",
        "MODULE[:NAME]",
        help="A Node, or a function that is given one. Without NAME: node, or else app.",
    ),
    LISTEN,
    CONFIG,
    option(
        "--app-dir",
        type=PATH,
        default=".",
        show_default="here",
        help="Where modules are looked for first.",
    ),
    flag("--reload", help="Start anew when a file has changed, while you write it."),
    option(
        "--reload-dir",
        type=PATH,
        multiple=True,
        help="Look for changes there; repeatable. Default: that of --app-dir.",
    ),
    option(
        "--topics/--no-topics",
        "tells",
        default=True,
        help="Whether peers may ask what is offered to them (`parley topics`).",
    ),
    ANNOUNCE,
    ANNOUNCE_NAME,
    JOURNAL,
    AUDITOR,
    JOURNAL_FSYNC,
    JOURNAL_ON_FAILURE,
    METRICS,
    CONSOLE,
    ACCESS_LOG,
    LOG_REQUESTS,
    examples=(
        "parley run shop:app --listen tcp://127.0.0.1:4747",
        "parley run shop --config parley.toml --reload",
    ),
)

CONSOLE_COMMAND: Final = command(
    "console",
    "console:console",
    "Print a link that opens the console of a server here once, within 10 minutes.",
    flag("--act", help="A link that may act, too: close, forget, replay, drop, drain."),
    flag("--open", "open_it", help="Open it in the browser of this machine."),
    option("--port", type=int, help="The port of the console, where several are running."),
    JSON,
    examples=(
        "parley console",
        "parley console --act --port 7480",
    ),
)

FIND: Final = command(
    "find",
    "find:find",
    "Show who is announced on the local network; takes the extra `discovery`.\n\nWhat a node "
    "says there is its own word: only dialling it with its id proves who it is.",
    option("--seconds", type=Number(), default=3.0, help="How long to look."),
    option(
        "--interface",
        metavar="IP",
        multiple=True,
        help="Only there, by an IPv4 address of this machine; repeatable. Default: all.",
    ),
    JSON,
    examples=("parley find --seconds 5",),
)

CALL: Final = node_command(
    "call",
    "call:call",
    "Call a topic and print its answer.",
    ADDRESS,
    argument("topic", "TOPIC", completes="completion.offered_names:calls", help="What to call."),
    argument("data", "DATA", required=False, help="Text; - for bytes from standard input."),
    option("--data-json", help="Any value, as JSON."),
    option("--timeout", type=Number(), default=30.0, help="Seconds to wait for the answer."),
    flag(
        "--raw",
        help="Print the bytes of the answer alone: byte strings as they are, text as UTF-8, "
        "other values as JSON; no line end.",
    ),
    examples=(
        "parley call tcp://127.0.0.1:4747 parley.echo hello",
        "parley call tcp://127.0.0.1:4747 shop.buy --data-json '{\"apples\": 3}' --json",
    ),
)

TOPICS: Final = node_command(
    "topics",
    "topics:topics",
    "Show what a node offers to you: names, kinds, types and what is said of them.",
    ADDRESS,
    argument("prefix", "PREFIX", default="", help="Only names that begin with it."),
    flag("--schema", help="One document of JSON Schema, in place of a list."),
    TIMEOUT,
    examples=(
        "parley topics tcp://127.0.0.1:4747",
        "parley topics tcp://127.0.0.1:4747 shop. --schema",
    ),
)

PING: Final = node_command(
    "ping",
    "ping:ping",
    "Measure the round trip to a node; with --watch, show a connection live.",
    ADDRESS,
    option(
        "--count",
        "-c",
        type=click.IntRange(min=1),
        help="How many times; default: 4, with --watch until Ctrl-C.",
    ),
    option(
        "--interval",
        type=Number(min=0.0),
        help="Seconds between two; default: 0.2, with --watch 1.",
    ),
    flag("--watch", help="Keep the connection, and show when it is lost, and back again."),
    examples=(
        "parley ping tcp://127.0.0.1:4747",
        "parley ping tcp://127.0.0.1:4747 --watch",
    ),
)

SUB: Final = node_command(
    "sub",
    "sub:sub",
    "Subscribe to a topic and print its notes, until the publisher ends it.",
    ADDRESS,
    argument(
        "topic", "TOPIC", completes="completion.offered_names:topics", help="What to subscribe to."
    ),
    option(
        "--count", type=click.IntRange(min=1), help="End after this many notes; default: never."
    ),
    option("--data", help="Text for the publisher to decide on."),
    option("--data-json", help="The same, any value as JSON."),
    option(
        "--give-up-after",
        metavar="SECONDS",
        type=Number(min=0.0),
        help="How long to wait for a lost connection; 0: end immediately. Default: as long as "
        "it takes.",
    ),
    examples=("parley sub tcp://127.0.0.1:4747 parley.clock --count 3",),
)

PUB: Final = node_command(
    "pub",
    "pub:pub",
    "Publish each line of standard input as a note; end when subscribers have them all.",
    argument("topic", "TOPIC", help="What to publish."),
    LISTEN,
    option(
        "--wait",
        type=click.IntRange(min=0),
        default=0,
        help="Read nothing before this many have subscribed.",
    ),
    flag("--json-lines", help="Each line is a value as JSON, not text."),
    option(
        "--slow",
        type=click.Choice(["unsubscribe", "drop-oldest"]),
        default="unsubscribe",
        help="What a subscriber that does not keep up loses: its subscription, or its oldest "
        "notes.",
    ),
    option(
        "--buffer",
        type=click.IntRange(min=1024),
        default=1048576,
        help="Bytes that may wait for each subscriber; a note counts 64 more than its length.",
    ),
    option(
        "--patience",
        type=Number(min=0.0),
        default=10.0,
        help="Seconds that the input waits for a slow subscriber.",
    ),
    option(
        "--keep",
        type=click.IntRange(min=1),
        help="Notes to keep, 16 MiB of them at most, for those that subscribe later, or again.",
    ),
    examples=("tail -f log | parley pub log.lines --listen tcp://127.0.0.1:4747 --wait 1",),
)

FEDERATION_LIST: Final = node_command(
    "list",
    "federation:list_servers",
    "Show a server's links, and all servers that it knows of.",
    ADDRESS,
    TIMEOUT,
    examples=("parley federation list tcp://127.0.0.1:4747 --identity admin.key",),
)

FEDERATION_PATH: Final = node_command(
    "path",
    "federation:path",
    "Show the way that a tunnel from a server takes to another one, or to an account there.",
    ADDRESS,
    argument("to", "ID...", nargs=-1, help="A server's node id, or a home's and a node's there."),
    TIMEOUT,
    examples=(
        "parley federation path tcp://127.0.0.1:4747 "
        "gjh7o3vmczh323dcm4esnkqtgek2ozre7tgnw7x5sdx6jnpylhda --identity admin.key",
    ),
)

FEDERATION_CHECK: Final = node_command(
    "check",
    "federation:check",
    "Show what is wrong in a federation, as one of its servers sees it; exits with 1 then.",
    ADDRESS,
    TIMEOUT,
    examples=("parley federation check tcp://127.0.0.1:4747 --identity admin.key",),
)

FEDERATION_COMMANDS: Final = group(
    "federation",
    "Look at a federation of servers: who is there, which way, and what is wrong.",
    FEDERATION_LIST,
    FEDERATION_PATH,
    FEDERATION_CHECK,
)
