"""The options shared by all commands that connect or listen, and the settings that they result in.

They are declared in `node.cli.commands.shared`.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from parley._crypto.identity import Identity, NodeId
from parley._crypto.keyfile import load_identity
from parley._crypto.registry import NAMES, PARAMETERS
from parley._node.cli.context_file import Context, Contexts, resolve_address
from parley._node.cli.default_identity import default_identity
from parley._node.cli.param_types import (
    parse_names,
    parse_required,
    read_network_key,
    read_passphrase,
    warn,
)
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, FileError, NotTrustedError, ParleyError
from parley._node.settings import ServeSettings, Settings, load_settings
from parley._node.settings.sources import AtLeast
from parley._node.transport.address import Address
from parley._node.trust.key_statements import KeyStatements, default_key_statements
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from parley._node.trust.policies import AnyPeer, FirstUse, Known, TrustPolicy, parse_trust

DEFAULT_ADDRESS = ServeSettings().listen[0]

# Arguments that are addresses.
_ADDRESSES = ("address", "bus", "home", "at")

# Settings by name, each with its option and value, for `load_settings`.
GivenSettings = Mapping[str, tuple[str, object]]


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The options as given and, for a server, the `settings` that it has loaded."""

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
    settings: Settings | None = None

    def load(
        self,
        path: Path | None = None,
        environ: Mapping[str, str] = MappingProxyType({}),
        *,
        given: GivenSettings = MappingProxyType({}),
        code: Settings | None = None,
    ) -> Settings:
        """Load the settings of a file and the environment; these options and `given` override them.

        Raises:
            ConfigError: an invalid value.
            UnknownAlgorithmError: an unknown algorithm.
            FileError: the network key can't be read.
        """
        named = {name: parse_names(name, getattr(self, name)) or None for name in PARAMETERS}
        required = parse_required(self.require)
        if self.plaintext and required:
            raise ConfigError(
                f"cannot require {', '.join(sorted(frozenset().union(*required.values())))} with "
                "--plaintext: plaintext uses no algorithms; leave --require or --plaintext out"
            )
        code = code or Settings()
        code = replace(code, node=replace(code.node, require={**code.node.require, **required}))
        options: dict[str, tuple[str, object]] = {
            **given,
            "node.role": ("--role", self.role),
            "node.resume": ("--resume", self.resume),
            "node.limits.max_payload": ("--max-payload", self.max_payload),
            "node.plaintext": ("--plaintext", "only" if self.plaintext else None),
            **{f"node.algorithms.{name}": (f"--{name}", names) for name, names in named.items()},
        }
        if self.max_payload is not None:  # otherwise one payload would exceed it
            options["node.peer_memory"] = ("--max-payload", AtLeast(2 * self.max_payload))
        settings = load_settings(path, environ, code=code, options=options)
        key = read_network_key(self.network_key)
        if key is not None:
            settings = replace(settings, node=replace(settings.node, network_key=key))
        return settings

    @cached_property
    def config(self) -> NodeConfig:
        """The node's settings; raises the errors of `load`."""
        return (self.load() if self.settings is None else self.settings).node

    def with_settings(self, settings: Settings) -> "NodeOptions":
        """Return the options of a server with `settings`, which apply if an option is not given."""
        serve = settings.serve
        own_key = self.fresh or self.identity_path is not None  # not the key of the settings
        return replace(
            self,
            settings=settings,
            identity_path=self.identity_path if own_key else serve.identity,
            passphrase_file=self.passphrase_file or (None if own_key else serve.passphrase_file),
            trust=self.trust or serve.trust,
            log_level=self.log_level or serve.log_level,
            log_format=self.log_format or serve.log_format,
        )

    def with_context(self, context: Context) -> "NodeOptions":
        """Return the options with values of the context for options that are not given."""
        key = None if self.fresh or context.identity is None else Path(context.identity)
        return replace(
            self, identity_path=self.identity_path or key, trust=self.trust or context.trust
        )

    def identity(self) -> Identity:
        """Return the identity to use.

        It is the identity of the key file, or the user's own, or a temporary one: if --fresh is
        given, or if the user's own key has none of the requested algorithms.

        Raises:
            ConfigError: --identity and --fresh are given.
            KeyFileError: the file can't be used.
        """
        if self.identity_path is not None:
            if self.fresh:
                raise ConfigError(
                    f"cannot use --identity '{self.identity_path}' with --fresh: leave one of the "
                    "options out"
                )
            return load_identity(self.identity_path, read_passphrase(self.passphrase_file))
        if self.fresh or self.plaintext:  # plaintext connections show no identity
            return self.temporary_identity()
        own = default_identity(read_passphrase(self.passphrase_file), warn)
        wanted = self._wanted_keys()
        if wanted and not set(wanted) & set(own.algorithms):
            warn(
                f"your key has no {' or '.join(wanted)} part: using a temporary identity, so "
                "peers will not recognise this node next time"
            )
            return self.temporary_identity()
        return own

    def temporary_identity(self) -> Identity:
        return Identity.create(self._wanted_keys() or ("ed25519",))

    def statements(self) -> KeyStatements:
        """Return the user's file of key statements, or statements in memory without a home
        directory.
        """
        serve = ServeSettings() if self.settings is None else self.settings.serve
        path = known_peers = None
        with suppress(ConfigError):
            path, known_peers = default_key_statements(), KnownPeers(default_known_peers())
        return KeyStatements(
            path,
            follow=serve.follows_successors,
            present=serve.present_statements,
            known_peers=known_peers,
        )

    def watched_ids(self) -> frozenset[NodeId]:
        """Return the node IDs in the user's contexts, which are on record for statements."""
        try:
            return Contexts().node_ids()
        except ParleyError:
            return frozenset()  # the commands for contexts report it

    @property
    def uses_own_identity(self) -> bool:
        """Whether the identity is the user's own: neither --identity nor a temporary one."""
        return self.identity_path is None and not self.fresh

    def _wanted_keys(self) -> tuple[str, ...]:
        required = self.config.require.get("signing", frozenset())
        return self.config.algorithms.get("signing", ()) or tuple(
            name for name in NAMES["signing"] if name in required
        )

    def listening_trust(self) -> TrustPolicy:
        """The trust policy for incoming peers; by default, every peer that proves its identity."""
        policy = parse_trust(self.trust or "any")
        _require_readable(policy, self.trust)
        return policy

    def dialling_trust(self, address: str) -> TrustPolicy:
        """Return the trust policy for the node at an address."""
        if self.trust is None and self.plaintext:
            return AnyPeer()
        policy = parse_trust(self.trust or "first-use")
        if "#" not in address:  # the node ID in the address decides, so no file is needed
            _require_readable(policy, self.trust)
        return policy

    def unattended_trust(self, address: str) -> TrustPolicy:
        """Return the trust policy for a link that is dialled without a user.

        Without --trust, an address without a node ID must belong to a known peer.

        Raises:
            NotTrustedError: it does not.
        """
        policy, target = self.dialling_trust(address), Address.parse(address)
        if (
            self.trust is None
            and target.node_id is None
            and isinstance(policy, FirstUse)
            and policy.known_peers.by_name(target.place) is None
        ):
            raise NotTrustedError(
                f"cannot trust the node at {target.place!r}: it is unknown; append #NODEID to "
                "the address, or give --trust first-use"
            )
        return policy


# The names of the shared options.
SHARED = tuple(each.name for each in fields(NodeOptions) if each.name != "settings")


def take_node_options(given: dict[str, Any]) -> NodeOptions:
    return apply_context(NodeOptions(**{name: given.pop(name) for name in SHARED}), given)


def apply_context(options: NodeOptions, given: dict[str, Any]) -> NodeOptions:
    """Apply the context that --context or an address in `given` names.

    Addresses in `given` that are names are replaced.

    Raises:
        ConfigError, FileError, KnownPeersError: as for `resolve_address`.
    """
    context = None if options.context is None else Contexts().find(options.context)
    for name in _ADDRESSES:
        if isinstance(given.get(name), str):
            given[name], context = resolve_address(given[name], context)
    if context is None:
        return options
    if context.auditor is not None and given.get("journal") and not given.get("auditor"):
        given["auditor"] = [context.auditor]
    return options.with_context(context)


def _require_readable(policy: TrustPolicy, text: str | None) -> None:
    """Raise for a missing or invalid file of known peers, before any connection is made."""
    if isinstance(policy, Known | FirstUse):
        len(policy.known_peers)  # reads the file
    if isinstance(policy, Known) and text != Known.name and not policy.known_peers.path.exists():
        raise FileError(
            f"cannot read the known peers in '{policy.known_peers.path}': the file does not "
            "exist; add peers with: parley peers add ID"
        )
