"""`parley context`: add, select, list, show and remove contexts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from parley._crypto.auditor import AuditorKey
from parley._crypto.errors import InvalidKeyError
from parley._crypto.keyfile import describe_keyfile
from parley._node.cli.context_file import Context, Contexts, require_value
from parley._node.cli.output import Output
from parley._node.errors import ConfigError
from parley._node.logs import one_line
from parley._node.transport.address import Address
from parley._node.trust.policies import AnyPeer, FirstUse, Known, parse_trust

_WORDS: Final = (AnyPeer.name, FirstUse.name, Known.name)


def add(
    name: str,
    address: str | None,
    identity: Path | None,
    trust: str | None,
    auditor: str | None,
    use: bool,
    force: bool,
    as_json: bool,
) -> None:
    out, file = Output(as_json), Contexts()
    context = _checked(address, identity, trust, auditor)
    file.add(name, context, force=force, use=use)
    out.print(f"added {name}{', now selected' if use else ''}")
    out.done(**_described(name, context, file.in_use), contexts=str(file.path))


def use(name: str | None, as_json: bool) -> None:
    out, file = Output(as_json), Contexts()
    file.use(name)
    out.print("no context is selected" if name is None else f"selected {name}")
    out.done(in_use=name, contexts=str(file.path))


def list_contexts(as_json: bool) -> None:
    out, file = Output(as_json), Contexts()
    found, in_use = file.all(), file.in_use
    width = max(map(len, found), default=0)
    for name, context in found.items():
        out.event("context", **_described(name, context, in_use))
        mark = "*" if name == in_use else " "
        out.print(one_line(f"{mark} {name:{width}}  {context.address or '-'}"))
    if not found:
        out.print(f"no contexts in {file.path}; add one with: parley context add NAME ADDR")
    out.done(count=len(found), contexts=str(file.path))


def show(name: str | None, as_json: bool) -> None:
    out, file = Output(as_json), Contexts()
    chosen = name or file.in_use
    if chosen is None:
        raise ConfigError(
            f"cannot show the selected context: none is selected in '{file.path}'; give NAME, or "
            "select one with: parley context use NAME"
        )
    context, in_use = file.find(chosen), file.in_use
    out.print(f"name      {chosen}{' (selected)' if chosen == in_use else ''}")
    out.print(one_line(f"address   {context.address or '-'}"))
    out.print(one_line(f"identity  {context.identity or 'your own key'}"))
    out.print(one_line(f"trust     {context.trust or 'as without a context'}"))
    out.print(one_line(f"auditor   {context.auditor or '-'}"))
    out.done(**_described(chosen, context, in_use), contexts=str(file.path))


def remove(name: str, as_json: bool) -> None:
    out, file = Output(as_json), Contexts()
    context = file.remove(name)
    out.print(f"removed {name}")
    out.done(**_described(name, context, None), contexts=str(file.path))


def _checked(
    address: str | None, identity: Path | None, trust: str | None, auditor: str | None
) -> Context:
    """Return a context of the options, with absolute paths.

    Raises:
        ConfigError, AddressError, KeyFileError: an invalid value.
    """
    if address is not None:
        Address.parse(address)
    if identity is not None:
        describe_keyfile(identity)
    if trust is not None:
        parse_trust(trust)
        if trust not in _WORDS:
            trust = str(Path(trust).expanduser().absolute())
    if auditor is not None:
        try:
            AuditorKey.parse(auditor)
        except InvalidKeyError as error:
            raise ConfigError(str(error)) from error
    path = None if identity is None else str(identity.absolute())
    context = Context(address=address, identity=path, trust=trust, auditor=auditor)
    if context == Context():
        raise ConfigError(
            "cannot add an empty context; give an address, --identity, --trust or --auditor"
        )
    for key, value in _values(context).items():
        if value is not None:
            require_value(key, value)
    return context


def _described(name: str, context: Context, in_use: str | None) -> dict[str, object]:
    return {"name": name, **_values(context), "in_use": name == in_use}


def _values(context: Context) -> Mapping[str, str | None]:
    return {
        "address": context.address,
        "identity": context.identity,
        "trust": context.trust,
        "auditor": context.auditor,
    }
