"""Commands that change files of this machine: keys, known peers, contexts."""

from typing import Final

from parley._node.cli.commands.declare import FILE, PATH, argument, command, flag, group, option
from parley._node.cli.commands.shared import (
    JSON,
    PASSPHRASE_FILE,
)

ACCOUNTS: Final = flag(
    "--accounts",
    help="Of the nodes that have an account at a server here, in place of the known peers.",
)
KNOWN_PEERS: Final = option(
    "--known-peers",
    metavar="FILE",
    type=PATH,
    help="Default: known_peers in $PARLEY_HOME or ~/.config/parley.",
)
KEY_FILE: Final = argument(
    "path", "PATH", type=FILE, required=False, help="The key file. Default: your own."
)
WHO: Final = argument(
    "who",
    "ID-OR-NAME",
    completes="completion.suggestions:known_names",
    help="A name, a node id, or the beginning of one that fits no other.",
)
CONTEXT_NAME: Final = argument(
    "name",
    "NAME",
    required=False,
    completes="completion.suggestions:contexts",
    help="Of a context.",
)

ID_NEW: Final = command(
    "new",
    "identity:new",
    "Make an identity and write its key file, readable by its owner only.",
    KEY_FILE,
    option(
        "--algorithm",
        default="ed25519",
        completes="completion.suggestions:algorithms",
        help="Comma list; the first key gives the node id.",
    ),
    PASSPHRASE_FILE,
    JSON,
    examples=(
        "parley id new bob.key",
        "parley id new bob.key --algorithm ml-dsa-65,ed25519 --passphrase-file secret",
    ),
)

ID_SHOW: Final = command(
    "show",
    "identity:show",
    "Show the public part of a key file: a node's, by default your own, or an auditor's.",
    KEY_FILE,
    PASSPHRASE_FILE,
    JSON,
    examples=(
        "parley id show",
        "parley id show bob.key",
    ),
)

PEERS_LIST: Final = command(
    "list",
    "peers:list_peers",
    "List the known peers, or with --accounts the nodes that have an account at a server here.",
    ACCOUNTS,
    KNOWN_PEERS,
    JSON,
    examples=("parley peers list",),
)

PEERS_ADD: Final = command(
    "add",
    "peers:add",
    "Record a node by its id, and under NAME; with --accounts give it an account.",
    argument("node_id", "ID", help="The whole node id."),
    argument("name", "NAME", required=False, help="For people. No commas, no blanks."),
    ACCOUNTS,
    KNOWN_PEERS,
    JSON,
    examples=("parley peers add 5qwpznkpw6p27h37murnr6ojwbs6gvnsgqpj74wvvy3aqjorrlkq bob",),
)

PEERS_FORGET: Final = command(
    "forget",
    "peers:forget",
    "Forget a peer: its sessions end, and the node that answers under its names next is new; "
    "with --accounts remove its account.",
    WHO,
    ACCOUNTS,
    KNOWN_PEERS,
    JSON,
    examples=("parley peers forget tcp://127.0.0.1:4747",),
)

PEERS_RENAME: Final = command(
    "rename",
    "peers:rename",
    "Give a peer another name; it keeps the addresses it is dialled at.",
    WHO,
    argument("new_name", "NEW-NAME", help="No commas, no blanks."),
    ACCOUNTS,
    KNOWN_PEERS,
    JSON,
    examples=("parley peers rename tcp://127.0.0.1:4747 bob",),
)

CONTEXT_ADD: Final = command(
    "add",
    "context:add",
    "Give a node a name, with the key and the trust that belong to it.",
    argument("name", "NAME", help="Letters, digits and - _ . , at most 64."),
    argument(
        "address",
        "ADDR",
        required=False,
        completes="completion.suggestions:known_addresses",
        help="tcp://host:port or unix:///path, best with #NODEID after it.",
    ),
    option("--identity", type=PATH, help="Key file. Default: your own key."),
    option(
        "--trust",
        completes=("any", "first-use", "known"),
        help="any, first-use, known, or a file of known peers.",
    ),
    option(
        "--auditor", metavar="KEY", help="Who can read the journal of a `serve --journal` there."
    ),
    flag("--use", help="Use it from now on."),
    flag("--force", help="Replace another of its name."),
    JSON,
    examples=(
        "parley context add home tcp://127.0.0.1:4747 --use",
        "parley context add shop tcp://shop.example:4747 --identity shop.key --trust known",
    ),
)

CONTEXT_USE: Final = command(
    "use",
    "context:use",
    "Have commands that are given no ADDR go to this context's; without NAME to none.",
    CONTEXT_NAME,
    JSON,
    examples=(
        "parley context use home",
        "parley context use",
    ),
)

CONTEXT_LIST: Final = command(
    "list",
    "context:list_contexts",
    "Show all contexts; * is the one in use.",
    JSON,
    examples=("parley context list",),
)

CONTEXT_SHOW: Final = command(
    "show",
    "context:show",
    "Show what a context stands for; without NAME the one in use.",
    CONTEXT_NAME,
    JSON,
    examples=(
        "parley context show",
        "parley context show shop",
    ),
)

CONTEXT_REMOVE: Final = command(
    "remove",
    "context:remove",
    "Forget a context; key files and known peers stay.",
    argument("name", "NAME", completes="completion.suggestions:contexts", help="Of a context."),
    JSON,
    examples=("parley context remove shop",),
)

ID_COMMANDS: Final = group(
    "id", "Make and show identities.", ID_NEW, ID_SHOW, moved={"path": "parley id show"}
)

PEERS_COMMANDS: Final = group(
    "peers",
    "Show and change known peers.",
    PEERS_LIST,
    PEERS_ADD,
    PEERS_FORGET,
    PEERS_RENAME,
)

CONTEXT_COMMANDS: Final = group(
    "context",
    "Names for the nodes that you speak with, and how you do.",
    CONTEXT_ADD,
    CONTEXT_USE,
    CONTEXT_LIST,
    CONTEXT_SHOW,
    CONTEXT_REMOVE,
)
