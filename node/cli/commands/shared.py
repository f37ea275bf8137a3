"""Options and arguments that commands of several groups share."""

from typing import Any, Final

import click

from parley._node.cli.commands.framework import (
    PATH,
    Command,
    Number,
    argument,
    command,
    flag,
    option,
)

KEX: Final = option(
    "--kex",
    completes="completion.suggestions:algorithms",
    section="Negotiation (comma lists, best first)",
    advanced=True,
    help="Key exchanges: x25519-mlkem768, x25519.",
)
SIGNING: Final = option(
    "--signing",
    completes="completion.suggestions:algorithms",
    section="Negotiation (comma lists, best first)",
    advanced=True,
    help="Signature algorithms: ed25519, ml-dsa-65, ecdsa-p256.",
)
HASH: Final = option(
    "--hash",
    completes="completion.suggestions:algorithms",
    section="Negotiation (comma lists, best first)",
    advanced=True,
    help="Hash algorithms: blake3, sha256, blake2b-256, sha512.",
)
CIPHER: Final = option(
    "--cipher",
    completes="completion.suggestions:algorithms",
    section="Negotiation (comma lists, best first)",
    advanced=True,
    help="Ciphers: aes-256-gcm, chacha20-poly1305, xchacha20-poly1305.",
)
SEALING: Final = option(
    "--sealing",
    completes="completion.suggestions:algorithms",
    section="Negotiation (comma lists, best first)",
    advanced=True,
    help="When to sign: chain (one signature for many events), each (every event).",
)
REQUIRE: Final = option(
    "--require",
    completes="completion.suggestions:any_algorithm",
    section="Negotiation (comma lists, best first)",
    advanced=True,
    help="Refuse connections that use other algorithms than these, for each kind that is named.",
)
MAX_PAYLOAD: Final = option(
    "--max-payload",
    type=int,
    section="Negotiation (comma lists, best first)",
    advanced=True,
    help="Largest payload in bytes, 1 KiB to 64 MiB.",
)
PLAINTEXT: Final = flag(
    "--plaintext",
    section="Disable encryption (for debugging only).",
    advanced=True,
    help="Don't encrypt, for debugging.",
)
IDENTITY: Final = option(
    "--identity",
    "identity_path",
    type=PATH,
    section="Identity and trust",
    help="Key file. Default: your own key (see `parley id show`).",
)
FRESH: Final = flag(
    "--fresh",
    section="Identity and trust",
    advanced=True,
    help="Use a new identity for this command and don't save it.",
)
CONTEXT: Final = option(
    "--context",
    metavar="NAME",
    envvar="PARLEY_CONTEXT",
    completes="completion.suggestions:contexts",
    section="Identity and trust",
    advanced=True,
    help="Use the identity, trust policy, auditor and (without ADDR) the address of this context.",
)
PASSPHRASE_FILE: Final = option(
    "--passphrase-file",
    type=PATH,
    section="Identity and trust",
    help="File with the passphrase of the key file.",
)
TRUST: Final = option(
    "--trust",
    completes=("any", "first-use", "known"),
    section="Identity and trust",
    help="Which nodes to trust: any, first-use, known, or a file of known peers. Default: "
    "first-use when dialling, any when listening. If ADDR has #NODEID, only that node is "
    "trusted.",
)
NETWORK_KEY: Final = option(
    "--network-key",
    type=PATH,
    section="Identity and trust",
    advanced=True,
    help="File with the key of a private network: 32 bytes, raw or as 64 hex digits.",
)
ROLE: Final = option(
    "--role",
    completes=("client", "server", "peer"),
    section="Identity and trust",
    advanced=True,
    help="Role of this node: client, server or peer. Default: peer.",
)
RESUME: Final = option(
    "--resume",
    metavar="SECONDS",
    type=Number(),
    section="Negotiation (comma lists, best first)",
    advanced=True,
    help="Seconds for which a session survives the loss of its connection, 0 to 600. Default: 30.",
)
LOOP: Final = option(
    "--loop", default="asyncio", advanced=True, help="Event loop: asyncio or trio."
)
UVLOOP: Final = option(
    "--uvloop/--no-uvloop",
    default=None,
    advanced=True,
    help="Use uvloop. Default: if it is installed.",
)
LOG_LEVEL: Final = option(
    "--log-level",
    completes=("debug", "info", "warning", "error"),
    advanced=True,
    help="Least severe level to log: debug, info, warning or error. Default: warning for servers "
    "and the bus, otherwise error.",
)
LOG_FORMAT: Final = option(
    "--log-format",
    completes=("text", "json"),
    advanced=True,
    help="Format of log lines: text, or json for one object per line. Default: text.",
)
JSON: Final = flag("--json", "as_json", help="Print JSON, one object per line.")
LISTEN: Final = option(
    "--listen",
    multiple=True,
    help="Listen on tcp://host:port or unix:///path; repeatable. Default: tcp://127.0.0.1:0",
)
AUDITOR_PASSPHRASE: Final = option(
    "--passphrase-file", type=PATH, help="File with the passphrase of the auditors' key files."
)

ADDRESS: Final = argument(
    "address",
    "ADDR",
    completes="completion.suggestions:places",
    help="tcp://host:port or unix:///path, preferably followed by #NODEID; or @NAME of a context "
    "or a known peer. Default: the address of the selected context.",
)

TIMEOUT: Final = option(
    "--timeout", type=Number(), default=10.0, help="Seconds to wait for the response."
)

CONFIG: Final = option(
    "--config",
    type=PATH,
    help="TOML file with settings. Variables such as PARLEY_SERVE_LISTEN override it, and options "
    "override both.",
)

# Options of all commands that connect or listen: the fields of `node.cli.options.NodeOptions`.
NODE_OPTIONS: Final = (
    KEX,
    SIGNING,
    HASH,
    CIPHER,
    SEALING,
    REQUIRE,
    MAX_PAYLOAD,
    PLAINTEXT,
    IDENTITY,
    FRESH,
    CONTEXT,
    PASSPHRASE_FILE,
    TRUST,
    NETWORK_KEY,
    ROLE,
    RESUME,
    LOOP,
    UVLOOP,
    LOG_LEVEL,
    LOG_FORMAT,
    JSON,
)


def node_command(
    name: str, target: str, help: str, *params: click.Parameter, **settings: Any
) -> Command:
    """Declare a command that connects or listens, with the options of all such commands."""
    return command(name, target, help, *params, *NODE_OPTIONS, takes_node_options=True, **settings)
