"""Commands of the section "Serve"."""

from typing import Final

from parley._node.cli.commands.framework import (
    PATH,
    argument,
    command,
    flag,
    group,
    option,
)
from parley._node.cli.commands.shared import (
    ADDRESS,
    CONFIG,
    JSON,
    LISTEN,
    TIMEOUT,
    node_command,
)

SERVE_LISTEN: Final = option("--listen", multiple=True, setting="serve.listen", help=LISTEN.help)
ANNOUNCE: Final = option(
    "--announce/--no-announce",
    default=None,
    setting="serve.announce",
    help="Announce the node's ID, addresses and name on the local network. Requires the "
    "`discovery` extra.",
)

ANNOUNCE_NAME: Final = option(
    "--announce-name",
    metavar="NAME",
    setting="serve.announce_name",
    help="Name in the announcement, at most 63 bytes.",
)

METRICS: Final = option(
    "--metrics",
    metavar="HOST:PORT",
    setting="serve.metrics",
    help="Serve /metrics for Prometheus, /healthz and /readyz by HTTP. Port 0 selects a free "
    "port. Requires the `metrics` extra.",
)

JOURNAL: Final = option(
    "--journal",
    metavar="DIR",
    type=PATH,
    section="Journal",
    setting="journal.directory",
    help="Write a journal to this directory. Requires --auditor.",
)

AUDITOR: Final = option(
    "--auditor",
    metavar="KEY",
    multiple=True,
    section="Journal",
    setting="journal.auditors",
    help="Public key of an auditor that can read it (`parley journal keygen`); repeatable.",
)

JOURNAL_FSYNC: Final = option(
    "--journal-fsync",
    completes=("always", "interval", "never"),
    section="Journal",
    setting="journal.fsync",
    help="When to force the journal to disk: always, interval or never. Default: interval.",
)

JOURNAL_ON_FAILURE: Final = option(
    "--journal-on-failure",
    completes=("alarm", "stop"),
    section="Journal",
    setting="journal.on_failure",
    help="If the journal cannot be written: alarm (continue without it) or stop. Default: alarm.",
)

CONSOLE: Final = option(
    "--console",
    metavar="HOST:PORT",
    setting="serve.console",
    help="Serve the web console at this loopback address and print a one-time link. Requires the "
    "`console` extra.",
)

ACCESS_LOG: Final = option(
    "--access-log/--no-access-log",
    default=None,
    setting="serve.access_log",
    help="Log connections and refused requests, whatever the log level.",
)

LOG_REQUESTS: Final = option(
    "--log-requests/--no-log-requests",
    default=None,
    setting="serve.log_requests",
    help="Log each answered request with its duration, whatever the log level.",
)

SERVE: Final = node_command(
    "serve",
    "serve.command:serve",
    "Run a server that offers parley.echo, parley.info and parley.clock, until SIGINT or "
    "SIGTERM.\n\nOptions add a bus, gateways, a journal or a federation. SIGHUP reloads the "
    "settings.",
    SERVE_LISTEN,
    CONFIG,
    option(
        "--forward",
        metavar="TOPIC=ADDR",
        multiple=True,
        setting="serve.forward",
        help="Republish a topic of the node at ADDR; repeatable. Reconnects within 30 s. Without "
        "#NODEID in ADDR, the node must be a known peer, unless --trust is given.",
    ),
    ANNOUNCE,
    ANNOUNCE_NAME,
    METRICS,
    option(
        "--simproto",
        multiple=True,
        section="Other dialects (unencrypted)",
        setting="simproto.listen",
        help="Listen for SimProto on tcp://host:port or unix:///path; repeatable.",
    ),
    option(
        "--named",
        multiple=True,
        section="Other dialects (unencrypted)",
        setting="named.listen",
        help="Listen for named events (the Rust crate bromine); repeatable.",
    ),
    option(
        "--named-flavour",
        completes=("plain", "typed"),
        section="Other dialects (unencrypted)",
        setting="named.flavour",
        help="plain (bromine 0.14 to 0.17) or typed (since 0.18). Default: plain.",
    ),
    option(
        "--relay",
        multiple=True,
        section="Other dialects (unencrypted)",
        setting="relay.listen",
        help="Listen for clients of the event relay, identified by UUIDs; repeatable.",
    ),
    option(
        "--bridge",
        metavar="TOPIC",
        section="Other dialects (unencrypted)",
        setting="relay.bridge",
        help="Publish the relay's broadcasts as notes of this topic, and vice versa.",
    ),
    flag(
        "--allow-insecure",
        default=None,
        setting="dialects.allow_insecure",
        section="Other dialects (unencrypted)",
        help="Allow --simproto, --named and --relay on addresses that other machines can reach, "
        "without encryption.",
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
        setting="bus.url",
        help="Offer this bus to other nodes: sqlite:///FILE or redis://HOST:PORT/DB.",
    ),
    option(
        "--bus-allow",
        metavar="RIGHT",
        multiple=True,
        section="Durable bus",
        setting="bus.allow",
        help="Grant rights on the bus: NODEID=publish+consume:EVENTS[:GROUPS]; also inspect and "
        "manage; * for any node, event or group. Repeatable. Default: no access.",
    ),
    option(
        "--link",
        metavar="ADDR",
        multiple=True,
        section="Federation of servers",
        setting="federation.links",
        help="Keep a link to the server at ADDR, which must include #NODEID; repeatable.",
    ),
    option(
        "--member",
        metavar="NODEID",
        multiple=True,
        section="Federation of servers",
        setting="federation.members",
        help="Accept links and cards (signed descriptions of a server) of this server; repeatable.",
    ),
    option(
        "--carry",
        metavar="NODEID",
        multiple=True,
        section="Federation of servers",
        setting="federation.carry",
        help="Forward tunnels of this server; repeatable. Default: none.",
    ),
    option(
        "--export",
        metavar="PATTERN",
        multiple=True,
        section="Federation of servers",
        setting="federation.exports",
        help="Let peers request these names through a tunnel, such as shop.*; repeatable. "
        "Default: none.",
    ),
    option(
        "--follow",
        metavar="PATTERN",
        multiple=True,
        section="Federation of servers",
        setting="federation.follow",
        help="Let accounts read these remote topics with this server's rights; repeatable. "
        "Default: none.",
    ),
    option(
        "--accounts",
        metavar="WHO",
        completes=("off", "known", "any"),
        section="Federation of servers",
        setting="federation.accounts",
        help="Which nodes can have an account: off, known, any, or comma-separated node IDs.",
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
    "Serve a node defined in a Python module (MODULE:NODE or MODULE:FUNCTION) until SIGINT or "
    "SIGTERM.\n\nSIGHUP reloads the settings.",
    argument(
        "target",
        "MODULE[:NAME]",
        help="A Node, or a function that accepts one. Default NAME: node or app.",
    ),
    SERVE_LISTEN,
    CONFIG,
    option(
        "--app-dir",
        type=PATH,
        default=".",
        show_default="current directory",
        help="Search this directory first for the module.",
    ),
    flag("--reload", help="Restart when a file changes (for development)."),
    option(
        "--reload-dir",
        type=PATH,
        multiple=True,
        help="Directory to watch; repeatable. Default: the --app-dir directory.",
    ),
    option(
        "--topics/--no-topics",
        "offers_topics",
        default=True,
        help="Let peers list the names that this node offers them (`parley topics`).",
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
    "Print a one-time link (valid for 10 minutes) to the web console of a server on this machine.",
    flag("--act", help="Let the link also perform actions: close, forget, replay, drop, drain."),
    flag("--open", "open_it", help="Open the link in the browser."),
    option("--port", type=int, help="Port of the console, if several are running."),
    JSON,
    examples=(
        "parley console",
        "parley console --act --port 7480",
    ),
)

FEDERATION_LIST: Final = node_command(
    "list",
    "federation:list_servers",
    "Show a server's links and all servers that it knows.",
    ADDRESS,
    TIMEOUT,
    examples=("parley federation list tcp://127.0.0.1:4747 --identity admin.key",),
)

FEDERATION_PATH: Final = node_command(
    "path",
    "federation:path",
    "Show the path of a tunnel from a server to another server or to an account there.",
    ADDRESS,
    argument(
        "to",
        "ID...",
        nargs=-1,
        help="Node ID of the target server; for an account, the ID of its server and then its own.",
    ),
    TIMEOUT,
    examples=(
        "parley federation path tcp://127.0.0.1:4747 "
        "gjh7o3vmczh323dcm4esnkqtgek2ozre7tgnw7x5sdx6jnpylhda --identity admin.key",
    ),
)

FEDERATION_CHECK: Final = node_command(
    "check",
    "federation:check",
    "List problems of a federation as one of its servers sees them. Exits with 1 if there are any.",
    ADDRESS,
    TIMEOUT,
    examples=("parley federation check tcp://127.0.0.1:4747 --identity admin.key",),
)

FEDERATION_COMMANDS: Final = group(
    "federation",
    "Inspect a federation of servers: members, paths and problems.",
    FEDERATION_LIST,
    FEDERATION_PATH,
    FEDERATION_CHECK,
)
