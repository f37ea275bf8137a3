"""The options that every command that connects or listens takes, turned into settings.

They are declared in `node.cli.commands.shared`.
"""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from parley._crypto.identity import Identity
from parley._crypto.keyfile import load_identity
from parley._crypto.registry import NAMES, PARAMETERS
from parley._node.cli.context_file import Context, Contexts, placed
from parley._node.cli.default_identity import own_identity
from parley._node.cli.param_types import (
    parse_names,
    parse_required,
    read_network_key,
    read_passphrase,
    warn,
)
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, FileError, NotTrustedError
from parley._node.settings import ServeSettings, Settings, load_settings
from parley._node.transport.address import Address
from parley._node.trust.policies import AnyPeer, FirstUse, Known, TrustPolicy, parse_trust

DEFAULT_ADDRESS = ServeSettings().listen[0]

# The arguments that are an address.
PLACES = ("address", "bus", "home", "at")


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The options as given; the methods make settings of them.

    `base` is what holds where no option is given.
    """

    kex: str | None = None
    signing: str | None = None
    hash: str | None = None
    cipher: str | None = None
    sealing: str | None = None
    require: str | None = None
    max_payload: int | None = None
    plaintext: bool = False
    identity_path: Path | None = None
    fresh: bool = False
    context: str | None = None
    passphrase_file: Path | None = None
    trust: str | None = None
    network_key: Path | None = None
    role: str | None = None
    resume: float | None = None
    loop: str = "asyncio"
    uvloop: bool | None = None
    log_level: str | None = None
    log_format: str | None = None
    as_json: bool = False
    base: NodeConfig = field(default_factory=NodeConfig)

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> "NodeOptions":
        """Take the shared options out of the values that a command was given.

        Raises:
            ConfigError, FileError, KnownPeersError: as `in_context`.
        """
        return in_context(cls(**{name: given.pop(name) for name in SHARED}), given)

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


# The names of the options that commands share (`node.cli.commands.shared`).
SHARED = tuple(each.name for each in fields(NodeOptions) if each.name != "base")


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
