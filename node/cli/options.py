"""The options that every command that connects or listens takes: one table for all of them.

Each option is declared here once, and turned into settings here once.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from parley._crypto.identity import Identity
from parley._crypto.keyfile import load_identity
from parley._crypto.registry import NAMES, PARAMETERS
from parley._node.cli.algorithm_lists import parse_names, parse_required
from parley._node.cli.completion.suggestions import algorithms, any_algorithm, contexts, words
from parley._node.cli.context.file import Context, Contexts
from parley._node.cli.context.places import VARIABLE, PlaceCommand, placed
from parley._node.cli.given_files import read_network_key, read_passphrase, warn
from parley._node.cli.own_key import own_identity
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, FileError, NotTrustedError
from parley._node.protocol.codes import ROLES
from parley._node.settings import ServeSettings, Settings, load_settings
from parley._node.settings.serve import LOG_FORMATS
from parley._node.transport.address import Address
from parley._node.trust.policies import AnyPeer, FirstUse, Known, TrustPolicy, parse_trust

DEFAULT_ADDRESS = ServeSettings().listen[0]

NEGOTIATION = "Negotiation (comma lists, best first)"
TRUST = "Identity and trust"
DIALECTS = "Other dialects (nothing is encrypted there)"


def _algorithms_option(parameter: str) -> Any:
    """The option for a comma list of a parameter's names."""
    return typer.Option(
        f"--{parameter}",
        help=f"Of {', '.join(NAMES[parameter])}.",
        rich_help_panel=NEGOTIATION,
        autocompletion=algorithms(parameter),
    )


Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output.")]
Kex = Annotated[str | None, _algorithms_option("kex")]
Signing = Annotated[str | None, _algorithms_option("signing")]
Hash = Annotated[str | None, _algorithms_option("hash")]
Cipher = Annotated[str | None, _algorithms_option("cipher")]
Sealing = Annotated[str | None, _algorithms_option("sealing")]
Require = Annotated[
    str | None,
    typer.Option(
        help="Algorithms that a connection must use; others of their kind are refused.",
        rich_help_panel=NEGOTIATION,
        autocompletion=any_algorithm,
    ),
]
MaxPayload = Annotated[
    int | None,
    typer.Option(help="Longest payload, bytes; 1 KiB to 64 MiB.", rich_help_panel=NEGOTIATION),
]
Plaintext = Annotated[
    bool,
    typer.Option("--plaintext", help="Unencrypted, for debugging.", rich_help_panel=NEGOTIATION),
]
IdentityPath = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        help="Key file. Default: your own, which `parley id show` shows.",
        rich_help_panel=TRUST,
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="An identity for this command alone, kept nowhere.", rich_help_panel=TRUST
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        envvar=VARIABLE,
        help="Identity, trust, auditor, and ADDR where it is left out, of this context.",
        rich_help_panel=TRUST,
        autocompletion=contexts,
    ),
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="File with the key file's passphrase.", rich_help_panel=TRUST),
]
Trust = Annotated[
    str | None,
    typer.Option(
        help="any, first-use, known, or a file of known peers. "
        "Default: first-use when dialling, any when listening. "
        "An address with a node id trusts that id alone.",
        rich_help_panel=TRUST,
        autocompletion=words("any", "first-use", "known"),
    ),
]
NetworkKey = Annotated[
    Path | None,
    typer.Option(
        help="File with the network's 32-byte key, raw or as 64 hex digits.",
        rich_help_panel=TRUST,
    ),
]
Role = Annotated[
    str | None,
    typer.Option(
        help="client, server or peer. Default: peer.",
        rich_help_panel=TRUST,
        autocompletion=words(*ROLES),
    ),
]
Resume = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How long a connection waits for another transport when its own is lost, 0 to 600. "
        "Default: 30.",
        rich_help_panel=NEGOTIATION,
    ),
]
Uvloop = Annotated[
    bool | None,
    typer.Option("--uvloop/--no-uvloop", help="Default: uvloop where it is installed."),
]
Loop = Annotated[
    str,
    typer.Option("--loop", help="The event loop's library: asyncio or trio."),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        help="debug, info, warning or error. Default: warning when listening or on a bus, "
        "else error.",
        autocompletion=words("debug", "info", "warning", "error"),
    ),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        help="text, or json: an object a line. Default: text.",
        autocompletion=words(*LOG_FORMATS),
    ),
]


# Of `serve` and `relay` only, which speak dialects that do not encrypt.
AllowInsecure = Annotated[
    bool,
    typer.Option(
        "--allow-insecure",
        help="Allow addresses that other machines can reach.",
        rich_help_panel=DIALECTS,
    ),
]


# Of the commands that listen.
Listen = Annotated[
    list[str] | None,
    typer.Option(help=f"tcp://host:port or unix:///path; repeatable. Default: {DEFAULT_ADDRESS}"),
]


# The arguments that are an address.
PLACES = ("address", "bus", "home", "at")

# Every shared option: its type and its default.
TABLE: dict[str, tuple[Any, Any]] = {
    "kex": (Kex, None),
    "signing": (Signing, None),
    "hash": (Hash, None),
    "cipher": (Cipher, None),
    "sealing": (Sealing, None),
    "require": (Require, None),
    "max_payload": (MaxPayload, None),
    "plaintext": (Plaintext, False),
    "identity_path": (IdentityPath, None),
    "fresh": (Fresh, False),
    "context": (ContextName, None),
    "passphrase_file": (PassphraseFile, None),
    "trust": (Trust, None),
    "network_key": (NetworkKey, None),
    "role": (Role, None),
    "resume": (Resume, None),
    "loop": (Loop, "asyncio"),
    "uvloop": (Uvloop, None),
    "log_level": (LogLevel, None),
    "log_format": (LogFormatOption, None),
    "as_json": (Json, False),
}


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The options as given; the methods make settings of them.

    `base` is what holds where no option is given.
    """

    kex: str | None
    signing: str | None
    hash: str | None
    cipher: str | None
    sealing: str | None
    require: str | None
    max_payload: int | None
    plaintext: bool
    identity_path: Path | None
    fresh: bool
    context: str | None
    passphrase_file: Path | None
    trust: str | None
    network_key: Path | None
    role: str | None
    resume: float | None
    loop: str
    uvloop: bool | None
    log_level: str | None
    log_format: str | None
    as_json: bool
    base: NodeConfig = field(default_factory=NodeConfig)

    def over(self, settings: Settings) -> "NodeOptions":
        """The same options, where none is given with what the settings say."""
        serve = settings.serve
        own_key = self.fresh or self.identity_path is not None  # what the settings name is not it
        return replace(
            self,
            base=settings.node,
            identity_path=self.identity_path if own_key else serve.identity,
            passphrase_file=self.passphrase_file or (None if own_key else serve.passphrase_file),
            trust=self.trust or serve.trust,
            log_level=self.log_level or serve.log_level,
            log_format=self.log_format or serve.log_format,
        )

    def of_context(self, context: Context) -> "NodeOptions":
        """The same options, where none is given with what the context has."""
        key = None if self.fresh or context.identity is None else Path(context.identity)
        return replace(
            self,
            identity_path=self.identity_path or key,
            trust=self.trust or context.trust,
        )

    def identity(self) -> Identity:
        """The key file's identity, or the person's own; a throw-away one if that is asked for, or
        if their own has none of the algorithms that are.

        Raises:
            ConfigError: both are asked for. KeyFileError: the key file cannot be used.
        """
        if self.identity_path is not None:
            if self.fresh:
                raise ConfigError(
                    f"cannot use --identity '{self.identity_path}' with --fresh: leave one of the "
                    "options out"
                )
            return load_identity(self.identity_path, read_passphrase(self.passphrase_file))
        if self.fresh or self.plaintext:  # which shows no identity
            return self.throw_away()
        own = own_identity(read_passphrase(self.passphrase_file), warn)
        wanted = self._wanted_keys()
        if wanted and not set(wanted) & set(own.algorithms):
            warn(f"your key has no {' and no '.join(wanted)}: this one is thrown away")
            return self.throw_away()
        return own

    def throw_away(self) -> Identity:
        """A fresh identity with the keys that are asked for."""
        return Identity.create(self._wanted_keys() or ("ed25519",))

    @property
    def is_own(self) -> bool:
        """Whether the identity is the person's own, and not one that was named or made for this."""
        return self.identity_path is None and not self.fresh

    def _wanted_keys(self) -> tuple[str, ...]:
        config = self.config()
        floor = config.require.get("signing", frozenset())
        return config.algorithms.get("signing", ()) or tuple(
            name for name in NAMES["signing"] if name in floor
        )

    def config(self) -> NodeConfig:
        """The node's settings.

        Raises:
            ConfigError: a value out of range. UnknownAlgorithmError: an unknown name.
        """
        base = self.base
        named = {name: parse_names(name, getattr(self, name)) or None for name in PARAMETERS}
        require = {**base.require, **parse_required(self.require)}
        if self.plaintext and require:
            raise ConfigError(
                f"cannot require {', '.join(sorted(frozenset().union(*require.values())))} with "
                "--plaintext: plaintext uses no algorithms; leave --require or --plaintext out"
            )
        key = read_network_key(self.network_key) or base.network_key
        code = Settings(node=replace(base, require=require, network_key=key))
        options: dict[str, tuple[str, object]] = {
            "node.role": ("--role", self.role),
            "node.resume": ("--resume", self.resume),
            "node.limits.max_payload": ("--max-payload", self.max_payload),
            "node.plaintext": ("--plaintext", "only" if self.plaintext else None),
            **{f"node.algorithms.{name}": (f"--{name}", names) for name, names in named.items()},
        }
        if self.max_payload is not None:  # else one would not fit
            memory = max(base.peer_memory, 2 * self.max_payload)
            options["node.peer_memory"] = ("--max-payload", memory)
        return load_settings(environ={}, code=code, options=options).node

    def listening_trust(self) -> TrustPolicy:
        """Which peers to let in: by default every peer that proves its identity."""
        policy = parse_trust(self.trust or "any")
        _require_readable(policy, self.trust)
        return policy

    def dialling_trust(self, address: str) -> TrustPolicy:
        """Which node may answer a dialled address that has no node id."""
        if self.trust is None and self.plaintext:
            return AnyPeer()
        policy = parse_trust(self.trust or "first-use")
        if "#" not in address:  # with a node id there, no file decides
            _require_readable(policy, self.trust)
        return policy

    def unattended_trust(self, address: str) -> TrustPolicy:
        """The same for a link that is dialled while nobody can be asked: without `--trust`, an
        address without a node id has to be on record.

        Raises:
            NotTrustedError: it is not.
        """
        policy, target = self.dialling_trust(address), Address.parse(address)
        if (
            self.trust is None
            and target.node_id is None
            and isinstance(policy, FirstUse)
            and policy.known_peers.by_name(target.place) is None
        ):
            raise NotTrustedError(
                f"cannot trust the node at {target.place!r}: it is not on record; append #NODEID "
                "to the address, or give --trust first-use"
            )
        return policy


def takes_node_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of `TABLE`; it gets them as its first argument, `NodeOptions`."""
    own = list(inspect.signature(command).parameters.values())[1:]
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in TABLE.items()
    ]

    @wraps(command)
    def with_options(**given: Any) -> None:
        options = NodeOptions(**{name: given.pop(name) for name in TABLE})
        command(in_context(options, given), **given)

    with_options.command_class = PlaceCommand  # type: ignore[attr-defined]  # read by `main`
    with_options.__signature__ = inspect.Signature(own + named)  # type: ignore[attr-defined]  # read by inspect
    with_options.__annotations__ = {p.name: p.annotation for p in own + named}
    return with_options


def in_context(options: NodeOptions, given: dict[str, Any]) -> NodeOptions:
    """The options with those of the context that they or an argument of `given` name; what stands
    for an address there becomes one, and what the context has for an option that is not given.

    Raises:
        ConfigError, FileError, KnownPeersError: as `placed`.
    """
    context = None if options.context is None else Contexts().find(options.context)
    for name in PLACES:
        if isinstance(given.get(name), str):
            given[name], context = placed(given[name], context)
    if context is None:
        return options
    if context.auditor is not None and given.get("journal") and not given.get("auditor"):
        given["auditor"] = [context.auditor]
    return options.of_context(context)


def _require_readable(policy: TrustPolicy, text: str | None) -> None:
    """Find a missing or broken file of known peers before any connection is made."""
    if isinstance(policy, Known | FirstUse):
        len(policy.known_peers)  # reads it
    if isinstance(policy, Known) and text != Known.name and not policy.known_peers.path.exists():
        raise FileError(f"there is no file of known peers at {policy.known_peers.path}")
