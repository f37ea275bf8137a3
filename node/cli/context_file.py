"""The file of contexts, and the addresses that `@NAME` refers to.

    in_use = "NAME"
    [contexts."NAME"]
    address, identity, trust, auditor = "..", each optional

The file is replaced as a whole, by one process at a time. Values are checked when a context is
added, and again when it is used.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from parley._crypto.identity import NodeId
from parley._node.errors import AddressError, ConfigError, FileError, ParleyError, os_reason
from parley._node.transport.address import Address
from parley._node.trust.files import home_directory, locked, replace_file
from parley._node.trust.known_peers import KnownPeers, default_known_peers

MOST_CONTEXTS: Final = 256
LONGEST: Final = 1_024  # characters of a value
MAX_FILE_SIZE: Final = 2_097_152
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The values of a context: `address` of a node, path of a key file `identity`, `trust` as for
    `--trust`, and `auditor` as a public key. None means the default.
    """

    address: str | None = None
    identity: str | None = None
    trust: str | None = None
    auditor: str | None = None


class Contexts:
    """The contexts in a file. A missing file has no contexts.

    Every method raises FileError if the file cannot be read or written, or is malformed.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or home_directory() / "contexts.toml"

    def all(self) -> Mapping[str, Context]:
        """Return all contexts by name, in the order in which they were added."""
        return self._read()[0]

    @property
    def in_use(self) -> str | None:
        """The name of the selected context."""
        return self._read()[1]

    def node_ids(self) -> frozenset[NodeId]:
        """Return the node IDs in the addresses of all contexts."""
        found = set[NodeId]()
        for context in self.all().values():
            with suppress(AddressError):  # the command that uses it reports it
                address = Address.parse(context.address or "")
                found |= {one for one in (address.node_id, *address.on_the_way) if one is not None}
        return frozenset(found)

    def find(self, name: str) -> Context:
        """Return the context of this name, or raise ConfigError."""
        found = self.all().get(name)
        if found is None:
            raise ConfigError(
                f"cannot find the context {name!r} in '{self.path}'; list all with: parley "
                "context list"
            )
        return found

    def add(self, name: str, context: Context, *, force: bool = False, use: bool = False) -> None:
        """Add a context, and select it with `use`; with `force`, replace one of the same name.

        Raises:
            ConfigError: the name exists or is invalid, or there are 256 contexts.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"invalid context name {ascii(name)[:80]}: expected 1 to 64 letters, digits, "
                "'-', '_' or '.'"
            )
        with locked(self.path, FileError):
            contexts, in_use = self._read()
            if name in contexts and not force:
                raise ConfigError(
                    f"cannot add the context {name!r}: it exists already; give --force to "
                    "replace it"
                )
            contexts[name] = context
            if len(contexts) > MOST_CONTEXTS:
                raise ConfigError(
                    f"cannot add the context {name!r}: there are {MOST_CONTEXTS} contexts "
                    "already; remove one with: parley context remove NAME"
                )
            self._write(contexts, name if use else in_use)

    def use(self, name: str | None) -> None:
        """Select a context, or none; ConfigError if it doesn't exist."""
        with locked(self.path, FileError):
            contexts, _ = self._read()
            if name is not None:
                self.find(name)
            self._write(contexts, name)

    def remove(self, name: str) -> Context:
        """Remove a context and return it; ConfigError if it doesn't exist."""
        with locked(self.path, FileError):
            removed = self.find(name)
            contexts, in_use = self._read()
            del contexts[name]
            self._write(contexts, None if in_use == name else in_use)
        return removed

    def _read(self) -> tuple[dict[str, Context], str | None]:
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_FILE_SIZE + 1)
        except FileNotFoundError:
            return {}, None
        except OSError as error:
            raise FileError(f"cannot read '{self.path}': {os_reason(error)}") from error
        if len(data) > MAX_FILE_SIZE:
            raise FileError(f"cannot read '{self.path}': it is longer than {MAX_FILE_SIZE:,} bytes")
        try:
            return _parse(tomllib.loads(data.decode()))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, ConfigError) as error:
            raise FileError(f"cannot read the contexts in '{self.path}': {error}") from error

    def _write(self, contexts: Mapping[str, Context], in_use: str | None) -> None:
        lines = [] if in_use is None else [f"in_use = {_quoted(in_use)}", ""]
        for name, context in contexts.items():
            lines.append(f"[contexts.{_quoted(name)}]")
            for each in fields(context):
                value = getattr(context, each.name)
                if value is not None:
                    lines.append(f"{each.name} = {_quoted(require_value(each.name, value))}")
            lines.append("")
        replace_file(self.path, "\n".join(lines).encode(), FileError)


def require_value(name: str, text: object) -> str:
    """Return a value of a context; ConfigError if it isn't one line of up to 1,024 characters."""
    if not isinstance(text, str) or not text.isprintable() or not 1 <= len(text) <= LONGEST:
        raise ConfigError(
            f"invalid {name} in a context: expected one line of 1 to {LONGEST:,} characters"
        )
    return text


def _parse(table: Mapping[str, Any]) -> tuple[dict[str, Context], str | None]:
    found, in_use = table.get("contexts", {}), table.get("in_use")
    known = {each.name for each in fields(Context)}
    if not isinstance(found, dict) or not table.keys() <= {"contexts", "in_use"}:
        wrong = sorted(table.keys() - {"contexts", "in_use"})
        reason = f"unknown key {wrong[0]!r}" if wrong else "'contexts' is not a table"
        raise ConfigError(f"{reason}; expected only 'in_use' and 'contexts'")
    contexts = {}
    for name, values in found.items():
        if not _NAME.fullmatch(name) or not isinstance(values, dict) or not values.keys() <= known:
            raise ConfigError(
                f"invalid context {name!r}; expected a table with any of {', '.join(sorted(known))}"
            )
        contexts[name] = Context(**{key: require_value(key, text) for key, text in values.items()})
    if in_use is not None and in_use not in contexts:
        raise ConfigError(f"the selected context {in_use!r} does not exist")
    return contexts, in_use


def _quoted(text: str) -> str:
    # A printable JSON string is also a basic string in TOML.
    return json.dumps(text, ensure_ascii=False)


MARK: Final = "@"
VARIABLE: Final = "PARLEY_CONTEXT"  # environment variable with the same meaning as --context


def is_one_in_use() -> bool:
    try:
        return Contexts().in_use is not None
    except ParleyError:
        return True  # the command that needs the file will report the error


def resolve_address(text: str, named: Context | None = None) -> tuple[str, Context | None]:
    """Return the address for ADDR and its context, if any. `named` is the context of `--context`.

    Raises:
        ConfigError: an unknown name, or one without an address.
        FileError, KnownPeersError: a file cannot be read.
    """
    if not text.startswith(MARK):
        return text, named
    name, contexts = text.removeprefix(MARK), Contexts()
    if not name:
        chosen = contexts.in_use
        if named is None and chosen is None:
            raise ConfigError(
                "cannot connect: ADDR is missing, and no context is selected in "
                f"'{contexts.path}'; give ADDR, or select a context with: parley context use NAME"
            )
        context = named or contexts.find(chosen or "")
        name = chosen or ""
    elif name in contexts.all():
        context = contexts.find(name)
    else:
        return _of_peer(name), named
    if context.address is None:
        raise ConfigError(f"cannot connect to the context {name!r}: it has no address; give ADDR")
    return context.address, context


def _of_peer(name: str) -> str:
    """Return the last address of a known peer, with its node ID."""
    known = KnownPeers(default_known_peers())
    peer = known.by_name(name)
    if peer is None:
        raise ConfigError(
            f"cannot find {('@' + name)!r}: it is neither a context nor a peer in '{known.path}'"
        )
    places = [one for one in peer.names if _is_address(one)]
    if not places:
        raise ConfigError(
            f"cannot connect to {('@' + name)!r}: '{known.path}' has no address of this peer; "
            "give ADDR"
        )
    return f"{places[-1]}#{peer.node_id}"


def _is_address(name: str) -> bool:
    try:
        Address.parse(name)
    except AddressError:
        return False
    return True
