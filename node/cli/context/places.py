"""Where a command goes: an address, `@NAME` for that of a context or of a known peer, or, where it
is left out, that of the context in use.
"""

from typing import Final

from parley._node.cli.context.file import Context, Contexts
from parley._node.errors import AddressError, ConfigError, ParleyError
from parley._node.transport.address import Address
from parley._node.trust.known_peers import KnownPeers, default_known_peers

MARK: Final = "@"
VARIABLE: Final = "PARLEY_CONTEXT"  # names a context, as --context does


def is_one_in_use() -> bool:
    """Return whether a context is in use, or the file of contexts can't be read."""
    try:
        return Contexts().in_use is not None
    except ParleyError:
        return True  # the command that needs the file reports the error


def placed(text: str, named: Context | None = None) -> tuple[str, Context | None]:
    """The address that stands for ADDR, and the context that it is of, if it is of one. `named` is
    the one of `--context`.

    Raises:
        ConfigError: nobody has that name, or they have no address. FileError, KnownPeersError: a
        file of names cannot be read.
    """
    if not text.startswith(MARK):
        return text, named
    name, contexts = text.removeprefix(MARK), Contexts()
    if not name:
        chosen = contexts.in_use
        if named is None and chosen is None:
            raise ConfigError(
                f"no ADDR is given, and no context is in use in '{contexts.path}'; give ADDR, or "
                "select a context with: parley context use NAME"
            )
        context = named or contexts.find(chosen or "")
        name = chosen or ""
    elif name in contexts.all():
        context = contexts.find(name)
    else:
        return _of_peer(name), named
    if context.address is None:
        raise ConfigError(f"the context {name} has no address: give ADDR")
    return context.address, context


def _of_peer(name: str) -> str:
    """Where a known peer was met, and who has to be there."""
    known = KnownPeers(default_known_peers())
    peer = known.by_name(name)
    if peer is None:
        raise ConfigError(f"nobody is called {name!r}: no context, and no peer in {known.path}")
    places = [one for one in peer.names if _is_address(one)]
    if not places:
        raise ConfigError(f"no address of {name} is on record in {known.path}")
    return f"{places[-1]}#{peer.node_id}"


def _is_address(name: str) -> bool:
    try:
        Address.parse(name)
    except AddressError:
        return False
    return True
