"""Commands of the section "Set up"."""

from typing import Final

import click

from parley._node.cli.commands.framework import (
    FILE,
    PATH,
    argument,
    command,
    flag,
    group,
    option,
)
from parley._node.cli.commands.shared import (
    CONFIG,
    JSON,
    PASSPHRASE_FILE,
)

ACCOUNTS: Final = flag(
    "--accounts",
    help="Use the accounts of a server on this machine instead of the known peers.",
)

KNOWN_PEERS: Final = option(
    "--known-peers",
    metavar="FILE",
    type=PATH,
    help="File of known peers. Default: known_peers in $PARLEY_HOME or ~/.config/parley.",
)

KEY_FILE: Final = argument(
    "path", "PATH", type=FILE, required=False, help="The key file. Default: your own key."
)

WHO: Final = argument(
    "who",
    "ID-OR-NAME",
    completes="completion.suggestions:known_names",
    help="A name, a node ID, or a unique prefix of a node ID.",
)

ENDED: Final = argument(
    "who",
    "ID-OR-NAME",
    completes="completion.suggestions:ended_ids",
    help="The ended node ID, a unique prefix of it, or its name among the known peers.",
)

CONTEXT_NAME: Final = argument(
    "name",
    "NAME",
    required=False,
    completes="completion.suggestions:contexts",
    help="Name of a context.",
)

RECOVERY_PASSPHRASE_FILE: Final = option(
    "--recovery-passphrase-file",
    metavar="FILE",
    type=PATH,
    help="File with the passphrase of the recovery file. Default: the passphrase of the key file.",
)

STATEMENT_OUT: Final = option(
    "--out",
    "statement_path",
    metavar="STATEMENT",
    type=FILE,
    required=True,
    help="New file for the statement.",
)

ID_NEW: Final = command(
    "new",
    "identity:new",
    "Create an identity and write its key file, readable only by its owner.",
    KEY_FILE,
    option(
        "--algorithm",
        default="ed25519",
        completes="completion.suggestions:algorithms",
        help="Comma-separated algorithms, one key for each; the first key determines the node ID.",
    ),
    option(
        "--recovery",
        metavar="FILE",
        type=FILE,
        help="Also create a recovery key in FILE. It can name a successor if the key is lost or "
        "stolen.",
    ),
    option(
        "--recovery-algorithm",
        metavar="NAME",
        completes="completion.suggestions:algorithms",
        help="Algorithm of the recovery key, as strong as that of the first key or stronger. "
        "Default: the same.",
    ),
    PASSPHRASE_FILE,
    RECOVERY_PASSPHRASE_FILE,
    JSON,
    examples=(
        "parley id new bob.key",
        "parley id new bob.key --recovery bob.recovery",
        "parley id new bob.key --recovery bob.recovery --recovery-algorithm ml-dsa-65",
        "parley id new bob.key --algorithm ml-dsa-65,ed25519 --passphrase-file secret",
    ),
)

ID_SHOW: Final = command(
    "show",
    "identity:show",
    "Show the node ID and algorithms of a key file, or an auditor's public key.",
    KEY_FILE,
    option(
        "--recovery",
        metavar="FILE",
        type=FILE,
        help="Check that the recovery file FILE belongs to the key file.",
    ),
    PASSPHRASE_FILE,
    RECOVERY_PASSPHRASE_FILE,
    JSON,
    examples=(
        "parley id show",
        "parley id show bob.key",
        "parley id show bob.key --recovery bob.recovery",
    ),
)

ID_SUCCEED: Final = command(
    "succeed",
    "statements:succeed",
    "Create a statement that names NEW-KEY as the successor of an identity whose key was lost, "
    "stolen or replaced.",
    argument("new_key", "NEW-KEY", type=FILE, help="Key file of the successor."),
    option(
        "--recovery",
        metavar="FILE",
        type=FILE,
        help="Recovery file of the old identity.",
    ),
    option(
        "--old-key",
        metavar="FILE",
        type=FILE,
        help="Key file of the old identity, if it has no recovery key.",
    ),
    STATEMENT_OUT,
    PASSPHRASE_FILE,
    option(
        "--old-passphrase-file",
        metavar="FILE",
        type=PATH,
        help="File with the passphrase of the recovery file or old key. Default: the passphrase of "
        "NEW-KEY.",
    ),
    JSON,
    examples=(
        "parley id succeed new.key --recovery old.recovery --out succession",
        "parley id succeed new.key --old-key old.key --out succession",
    ),
)

ID_REVOKE: Final = command(
    "revoke",
    "statements:revoke",
    "Create a statement that ends an identity, to use now or to keep for later.",
    KEY_FILE,
    option(
        "--recovery",
        metavar="FILE",
        type=FILE,
        help="Recovery file of the identity, instead of its key file.",
    ),
    STATEMENT_OUT,
    PASSPHRASE_FILE,
    JSON,
    examples=(
        "parley id revoke bob.key --out bob.revocation",
        "parley id revoke --recovery bob.recovery --out bob.revocation",
    ),
)

ID_PASSWD: Final = command(
    "passwd",
    "identity:passwd",
    "Change the passphrase of a key, recovery or auditor's key file. Copies keep the old one.",
    KEY_FILE,
    option(
        "--passphrase-file",
        type=PATH,
        help="File with the present passphrase. Default: ask on the terminal.",
    ),
    option(
        "--new-passphrase-file",
        type=PATH,
        help="File with the new passphrase. Default: ask twice on the terminal.",
    ),
    flag("--no-passphrase", help="Remove the passphrase: the file is then not encrypted."),
    JSON,
    examples=(
        "parley id passwd",
        "parley id passwd bob.key --passphrase-file old --new-passphrase-file new",
        "parley id passwd bob.key --passphrase-file old --no-passphrase",
    ),
)

PEERS_LIST: Final = command(
    "list",
    "peers:list_peers",
    "List the known peers, or with --accounts the accounts of a server on this machine.",
    ACCOUNTS,
    KNOWN_PEERS,
    CONFIG,
    JSON,
    examples=("parley peers list",),
)

PEERS_ADD: Final = command(
    "add",
    "peers:add",
    "Add a known peer by node ID, with an optional name; with --accounts, give it an account.",
    argument("node_id", "ID", help="The complete node ID."),
    argument("name", "NAME", required=False, help="Name of the peer, without commas and spaces."),
    ACCOUNTS,
    KNOWN_PEERS,
    CONFIG,
    JSON,
    examples=("parley peers add 5qwpznkpw6p27h37murnr6ojwbs6gvnsgqpj74wvvy3aqjorrlkq bob",),
)

PEERS_FORGET: Final = command(
    "forget",
    "peers:forget",
    "Remove a known peer and close its sessions, or with --accounts its account. This includes "
    "the ended node IDs that it succeeds. The next node to answer under its names is treated as "
    "new.",
    WHO,
    ACCOUNTS,
    KNOWN_PEERS,
    CONFIG,
    JSON,
    examples=("parley peers forget tcp://127.0.0.1:4747",),
)

PEERS_RENAME: Final = command(
    "rename",
    "peers:rename",
    "Rename a known peer. Its addresses are kept.",
    WHO,
    argument("new_name", "NEW-NAME", help="The new name, without commas and spaces."),
    ACCOUNTS,
    KNOWN_PEERS,
    CONFIG,
    JSON,
    examples=("parley peers rename tcp://127.0.0.1:4747 bob",),
)

PEERS_APPLY: Final = command(
    "apply",
    "ended_ids:apply",
    "Store the key statement in FILE, which ends a node ID and can name its successor. Shows the "
    "node IDs and asks first.",
    argument("path", "FILE", type=FILE, help="Statement from `parley id succeed` or `id revoke`."),
    flag("--yes", help="Don't ask."),
    CONFIG,
    JSON,
    examples=("parley peers apply bob.succession",),
)

PEERS_ACCEPT: Final = command(
    "accept",
    "ended_ids:accept",
    "Accept the successor of an ended node ID, which then also has the rights that were granted "
    "to the old ID.",
    ENDED,
    option(
        "--as",
        "successor",
        metavar="ID",
        help="The successor: its whole node ID, or 'none'. Default: the only one that a stored "
        "statement names.",
    ),
    CONFIG,
    JSON,
    examples=(
        "parley peers accept bob",
        "parley peers accept bob --as y72auv6qcsnz6cjo4gokz6hmnsvegdq4wsjpjzordwa6rbp2bosq",
    ),
)

PEERS_REFUSE: Final = command(
    "refuse",
    "ended_ids:refuse",
    "Refuse every successor of an ended node ID, as `accept --as none` does.",
    ENDED,
    CONFIG,
    JSON,
    examples=("parley peers refuse bob",),
)

PEERS_SHOW: Final = command(
    "show",
    "ended_ids:show",
    "Show the ended node IDs: statements, decisions, open questions, and the rules that still "
    "name them.",
    KNOWN_PEERS,
    CONFIG,
    JSON,
    examples=(
        "parley peers show",
        "parley peers show --config parley.toml",
    ),
)

CONTEXT_ADD: Final = command(
    "add",
    "context:add",
    "Save a node's address, key and trust settings under a name, for use as @NAME.",
    argument(
        "name", "NAME", help="Name of the context: letters, digits, '-', '_' and '.', at most 64."
    ),
    argument(
        "address",
        "ADDR",
        required=False,
        completes="completion.suggestions:known_addresses",
        help="tcp://host:port or unix:///path, preferably followed by #NODEID.",
    ),
    option("--identity", type=PATH, help="Key file. Default: your own key."),
    option(
        "--trust",
        completes=("any", "first-use", "known"),
        help="any, first-use, known, or a file of known peers.",
    ),
    option(
        "--auditor", metavar="KEY", help="Public key of the auditor for `parley serve --journal`."
    ),
    flag("--use", help="Select the context."),
    flag("--force", help="Replace an existing context."),
    JSON,
    examples=(
        "parley context add home tcp://127.0.0.1:4747 --use",
        "parley context add shop tcp://shop.example:4747 --identity shop.key --trust known",
    ),
)

CONTEXT_USE: Final = command(
    "use",
    "context:use",
    "Select the context for commands without ADDR; without NAME, clear the selection.",
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
    "List all contexts; * marks the selected one.",
    JSON,
    examples=("parley context list",),
)

CONTEXT_SHOW: Final = command(
    "show",
    "context:show",
    "Show a context; without NAME, the selected one.",
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
    "Remove a context. Key files and known peers are kept.",
    argument(
        "name", "NAME", completes="completion.suggestions:contexts", help="Name of a context."
    ),
    JSON,
    examples=("parley context remove shop",),
)

COMPLETION: Final = command(
    "completion",
    "completion.scripts:completion",
    "Print a shell script that completes parley commands; `source` it in your shell profile.",
    argument(
        "shell", "SHELL", type=click.Choice(["bash", "zsh", "fish"]), help="bash, zsh or fish."
    ),
    examples=("parley completion bash > ~/.parley-completion",),
)

ERRORS: Final = command(
    "errors",
    "error_catalogue:errors",
    "Explain close codes, result codes, exit codes, and codes of other dialects.",
    argument(
        "code",
        "CODE",
        required=False,
        completes="error_catalogue:names",
        help="A number or name, such as 17 or deadline-exceeded. Default: all.",
    ),
    JSON,
    examples=(
        "parley errors deadline-exceeded",
        "parley errors 17",
    ),
    context_settings={"ignore_unknown_options": True},
)

ID_COMMANDS: Final = group(
    "id",
    "Create, show, replace and end identities, and change their passphrases.",
    ID_NEW,
    ID_SHOW,
    ID_PASSWD,
    ID_SUCCEED,
    ID_REVOKE,
    moved={"path": "parley id show"},
)

PEERS_COMMANDS: Final = group(
    "peers",
    "Manage known peers, and the successors of ended node IDs.",
    PEERS_LIST,
    PEERS_ADD,
    PEERS_FORGET,
    PEERS_RENAME,
    PEERS_SHOW,
    PEERS_APPLY,
    PEERS_ACCEPT,
    PEERS_REFUSE,
)

CONTEXT_COMMANDS: Final = group(
    "context",
    "Manage contexts: saved names for node addresses, keys and trust settings.",
    CONTEXT_ADD,
    CONTEXT_USE,
    CONTEXT_LIST,
    CONTEXT_SHOW,
    CONTEXT_REMOVE,
)
