"""Generate the API pages of the docs site from the docstrings.

`build_site` writes them below build/docs; they are not in git. `reference_pages` lists the public
names of each page.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import Any, Final, cast, get_overloads

from docs.docstring_markdown import paragraphs, summary
from docs.reference_pages import PAGES, Page

WIDTH: Final = 96
_SIMPLE: Final = (int, float, bool, bytes, type(None))


def fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """Name, type and default of the fields of a dataclass, or of a NamedTuple."""
    tree = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0])
    kinds = {
        ast.unparse(node.target): node.annotation
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
    }
    if not dataclasses.is_dataclass(cls):
        usual = getattr(cls, "_field_defaults", {})
        for name, kind in kinds.items():
            yield name, type_text(kind), _default_text(usual[name], None) if name in usual else ""
        return
    for each in dataclasses.fields(cls):
        default = ""
        if each.default is not dataclasses.MISSING:
            default = _default_text(each.default, None)
        elif each.default_factory is not dataclasses.MISSING:
            made = each.default_factory()
            default = repr(made) if made in ({}, ()) else f"{type(made).__name__}()"
        yield each.name, type_text(kinds[each.name]), default


def definition(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The function as its source has it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    return cast("ast.FunctionDef | ast.AsyncFunctionDef", tree)


def signatures(function: Any, name: str) -> Iterator[str]:
    """Each overload as `signature` shows it, with the defaults of `function`; or `function`."""
    for overload in get_overloads(function) or [function]:
        yield signature(overload, name, function)


def signature(function: Any, name: str, made: Any = None) -> str:
    """The line, or lines, with which `function` is shown under `name`. Defaults that are `...`
    are those of `made`."""
    tree = definition(function)
    values = inspect.signature(function if made is None else made).parameters
    given = tree.args
    positional = [*given.posonlyargs, *given.args]
    required: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    parameters = [*zip(positional, [*required, *given.defaults], strict=True)]
    texts = [_argument(one, default, values) for one, default in parameters]
    if given.vararg is not None:
        texts.append("*" + _argument(given.vararg, None, values))
    elif given.kwonlyargs:
        texts.append("*")
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    texts += [_argument(one, default, values) for one, default in named]
    if positional and positional[0].arg in ("self", "cls"):
        del texts[0]
    prefix = "async def " if isinstance(tree, ast.AsyncFunctionDef) else "def "
    if any("asynccontextmanager" in ast.unparse(mark) for mark in tree.decorator_list):
        prefix = "async with "
    returns = f" -> {type_text(tree.returns)}" if tree.returns else ""
    return call(prefix + name, texts, returns)


def _argument(
    argument: ast.arg, default: ast.expr | None, values: Mapping[str, inspect.Parameter]
) -> str:
    if default is not None and argument.arg not in values:  # it is one of `**options`
        return parameter(argument.arg, type_text(argument.annotation), ast.unparse(default))
    value = None if default is None else values[argument.arg].default
    is_told = isinstance(default, ast.Constant) and default.value is ...
    text = "" if default is None else _default_text(value, None if is_told else default)
    return parameter(argument.arg, type_text(argument.annotation), text)


def call(name: str, parameters: list[str], returns: str) -> str:
    """The call on one line if it fits into `WIDTH`, otherwise a parameter a line."""
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) <= WIDTH:
        return line
    inside = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{name}(\n{inside}){returns}"


def parameter(name: str, kind: str, default: str) -> str:
    """A parameter as it stands in a signature; `kind` and `default` may be empty."""
    typed = f"{name}: {kind}" if kind else name
    return f"{typed} = {default}" if default else typed


def _default_text(value: object, source: ast.expr | None) -> str:
    """A default: the number behind a constant's name, otherwise what the source says."""
    if type(value) is int and value >= 10_000:
        return f"{value:_}"
    if type(value) is str:
        return f'"{value}"'
    if source is None and callable(value):
        return str(getattr(value, "__name__", value))
    if type(value) in _SIMPLE or source is None:
        return repr(value)
    return ast.unparse(source)


def type_text(node: ast.expr | None) -> str:
    """An annotation as the source has it, without the quotes that hide a name."""
    return "" if node is None else ast.unparse(_Unquoted().visit(node)).replace("'", '"')


class _Unquoted(ast.NodeTransformer):
    """Takes the quotes from names that the source has to quote, and metadata from types."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value) == "Annotated":
            inner: ast.AST = self.visit(cast(ast.Tuple, node.slice).elts[0])
            return inner
        return node if ast.unparse(node.value) == "Literal" else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node


@dataclass(frozen=True)
class Shown:
    """How a class is shown: not at all what is in `hidden`; without its constructor if the
    application is handed instances and makes none; without what its bases say of themselves if
    `alone`."""

    made: bool = True
    alone: bool = False
    hidden: frozenset[str] = field(default_factory=frozenset)


# What links, and those at a home, have for their own parts.
_OF_LINKS: Final = frozenset(
    {
        "close_buses",
        "connected",
        "add_subscription",
        "next_session",
        "node_ends",
        "over",
        "over_error",
        "remove_subscription",
    }
)

SHOWN: Final[dict[str, Shown]] = {
    "Agreed": Shown(made=False, hidden=frozenset({"without_secrets"})),
    "AnswerStream": Shown(made=False),
    "Bus": Shown(
        made=False, alone=True, hidden=frozenset({"begin", "drain", "is_closed", "opened"})
    ),
    "BusConfig": Shown(hidden=frozenset({"format_of", "group_name"})),
    "BusEvent": Shown(made=False),
    "BusRequest": Shown(made=False),
    "Consumption": Shown(made=False, hidden=frozenset({"close"})),
    "Counters": Shown(made=False),
    "DeadLetter": Shown(made=False),
    "History": Shown(made=False),
    "SchemaViolationError": Shown(made=False),
    "Bridge": Shown(hidden=frozenset({"deliver"})),
    "Call": Shown(made=False, hidden=frozenset({"hold_to"})),
    "Candidate": Shown(made=False),
    "ConnectedNodes": Shown(made=False),
    "ConnectionEnded": Shown(made=False),
    "Emission": Shown(made=False),
    "FormattedPayload": Shown(hidden=frozenset({"cells"})),
    "FederatedServer": Shown(made=False),
    "FederationFinding": Shown(made=False),
    "Guest": Shown(made=False, hidden=frozenset({"closed_error", "is_gone"})),
    "Home": Shown(made=False, hidden=_OF_LINKS),
    "Link": Shown(made=False, hidden=_OF_LINKS),
    "LinkState": Shown(made=False),
    "NamedClient": Shown(hidden=frozenset({"connected", "over_error"})),
    "NamedEvent": Shown(made=False, hidden=frozenset({"hold_to"})),
    "NamedPeer": Shown(
        made=False, hidden=frozenset({"begin_close", "drained", "running", "stop_handlers"})
    ),
    "Payload": Shown(made=False, hidden=frozenset({"cells"})),
    "RedisFormat": Shown(hidden=frozenset({"fields", "key", "name", "read"})),
    "Relay": Shown(hidden=frozenset({"join"})),
    "RelayClient": Shown(hidden=frozenset({"connected", "over_error"})),
    "RelayFault": Shown(made=False),
    "RelayMessage": Shown(made=False),
    "Replies": Shown(made=False),
    "Reply": Shown(made=False),
    "SimProtoClient": Shown(hidden=frozenset({"connected", "over_error"})),
    "SimProtoPeer": Shown(
        made=False,
        hidden=frozenset(
            [
                "connected",
                "drain",
                "drained",
                "gone",
                "is_over",
                "running_requests",
                "wait_writable",
            ]
        ),
    ),
    "SimProtoSubscription": Shown(made=False),
    "FaultyDirection": Shown(made=False, hidden=frozenset({"carry"})),
    "IdentityChangedError": Shown(made=False),
    "BlockingAnswer": Shown(made=False),
    "BlockingLink": Shown(made=False),
    "BlockingPeer": Shown(made=False),
    "BlockingSubscription": Shown(made=False),
    "Backend": Shown(
        made=False,
        hidden=frozenset({"connect", "listen", "scheduler", "spawn", "start_tasks", "waiter"}),
    ),
    "Batches": Shown(made=False),
    "DataType": Shown(made=False),
    "FakeTimer": Shown(made=False),
    "HashAlgorithm": Shown(made=False),
    "Intercepted": Shown(made=False),
    "Registrar": Shown(made=False, hidden=frozenset({"aclose", "begin", "change_limits", "drain"})),
    "Observed": Shown(hidden=frozenset({"backend"})),
    "SegmentFile": Shown(made=False),
    "SigningKey": Shown(made=False),
    "SlotTable": Shown(made=False),
    "StreamEvents": Shown(made=False),
    "Transfer": Shown(made=False),
    "Verifier": Shown(made=False, hidden=frozenset({"algorithm"})),
    "LinkSubscription": Shown(made=False),
    "Namespace": Shown(hidden=frozenset({"handlers"})),
    "ServedConsole": Shown(made=False),
    "Journal": Shown(
        made=False,
        hidden=frozenset(
            {"barrier", "begin", "end", "families", "session_log", "stops_node", "tunnel"}
        ),
    ),
    "JournalMetrics": Shown(made=False),
    "KnownPeer": Shown(made=False),
    "Limits": Shown(hidden=frozenset({"agreed_with", "cells", "from_cells"})),
    "MemoryStream": Shown(made=False),
    "Peer": Shown(made=False, hidden=frozenset({"closed_error"})),
    "PublicIdentity": Shown(made=False, hidden=frozenset({"cells", "parse", "verifier"})),
    "Identity": Shown(hidden=frozenset({"cells"})),
    "Node": Shown(hidden=frozenset({"handlers", "metrics", "trust"})),
    **{
        f"{name}Options": Shown(made=False)
        for name in ("Call", "Consume", "Handler", "Request", "StreamCall", "Subscribe", "Write")
    },
    "TopicOptions": Shown(made=False),
    "NodeConfig": Shown(hidden=frozenset({"core"})),
    "FileOffer": Shown(made=False, hidden=frozenset({"decode", "encode"})),
    "PeerClosedError": Shown(made=False),
    "Receipt": Shown(made=False, hidden=frozenset({"decode", "encode"})),
    "Remote": Shown(made=False, hidden=frozenset({"closed_error"})),
    "Roles": Shown(made=False),
    "JournalSource": Shown(
        made=False, hidden=frozenset({"name", "reader", "schema", "streamReader"})
    ),
    "Source": Shown(made=False, hidden=frozenset({"begins_with", "read"})),
    "FileStore": Shown(
        hidden=frozenset(
            ["discard", "open_existing", "open_partial", "place", "require_replaceable"]
        )
    ),
    "Stream": Shown(
        made=False,
        hidden=frozenset(
            ["send_answer", "data_received", "event_received", "finished", "failed", "writable"]
        ),
    ),
    "StreamEvent": Shown(made=False),
    "StreamKey": Shown(hidden=frozenset({"start"})),
    "SubscribeRequest": Shown(made=False, hidden=frozenset({"hold_to"})),
    "Subscriber": Shown(made=False),
    "Subscription": Shown(made=False, hidden=frozenset({"ended", "lost"})),
    "Suite": Shown(
        made=False,
        hidden=frozenset(
            ["kex_algorithm", "signing_algorithm", "hash_algorithm", "cipher_algorithm"]
        ),
    ),
    "Tables": Shown(hidden=frozenset({"checkpoint", "write_batch"})),
    "Topic": Shown(made=False, hidden=frozenset({"flush", "takes", "rules", "join"})),
}


DIRECTORY: Final = "docs/reference/api"
OURS: Final = "parley"
LISTED: Final = {name.rpartition(".")[2] for page in PAGES.values() for name in page.names}
# Bases with an entry of their own, which pages of subclasses don't repeat.
_ALONE: Final = LISTED
_NO_NEWS: Final = ("object", "tuple", "Protocol", "IntEnum", "bytes", "Exception", "Generic")
_SPECIAL: Final = {"__aenter__": "async with", "__anext__": "async for", "__iter__": "for"}


def build() -> dict[str, str]:
    """Return the text of each page by its path in the tree."""
    pages = {f"{DIRECTORY}/{name}.md": _page(page) for name, page in PAGES.items()}
    return {f"{DIRECTORY}/README.md": _index(), **pages}


def find(dotted: str) -> Any:
    """The object that a dotted name names; None for an alias that is not one."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


# Pages.


def _index() -> str:
    lines = ["# The API", "", "All names that are public, a page for each subject."]
    for name, page in PAGES.items():
        lines += ["", f"## {page.title}", ""]
        for dotted in page.names:
            title = dotted.rpartition(".")[2]
            lines.append(f"- [{title}]({name}.md#{title.lower()}): {_summary(dotted)}")
    return "\n".join(lines) + "\n"


def _page(page: Page) -> str:
    parts = [f"# {page.title}", page.intro]
    parts.append(f"How to use it: [{page.guides}.md](../../guides/{page.guides}.md).")
    for dotted in page.names:
        parts += _entry(dotted)
    return "\n\n".join(parts) + "\n"


def _entry(dotted: str) -> Iterator[str]:
    found = find(dotted)
    name = dotted.rpartition(".")[2]
    yield f"## {name}"
    if inspect.isclass(found):
        yield from _class(dotted, found, SHOWN.get(name, Shown()))
    elif inspect.isfunction(found):
        yield f"From `{dotted.rpartition('.')[0]}`."
        yield _code("\n\n".join(signatures(inspect.unwrap(found), name)))
        yield from paragraphs(_documented(found, name))
    else:
        yield from _value(dotted)


def _summary(dotted: str) -> str:
    found = find(dotted)
    if inspect.isclass(found) or inspect.isfunction(found):
        return summary(_documented(found, dotted))
    return "a type for annotations." if hasattr(found, "__args__") else "a constant."


def _value(dotted: str) -> Iterator[str]:
    """A constant, or a type that has a name."""
    module, _, name = dotted.rpartition(".")
    made = _assigned("parley._face" if module == "parley" else module, name)
    if isinstance(made, ast.AnnAssign) and ast.unparse(made.annotation) != "TypeAlias":
        yield f"A constant, from `{module}`."
        yield _code(ast.unparse(made))
    else:
        yield f"A type for annotations, from `{module}`."
        yield _code(f"{name} = {type_text(made.value)}")


def _assigned(module: str, name: str) -> ast.Assign | ast.AnnAssign:
    """Where it is made; imports are followed to there."""
    for node in ast.parse(inspect.getsource(import_module(module))).body:
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                if name == (one.asname or one.name):
                    return _assigned(str(node.module), one.name)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return node
    raise ValueError(f"{name} is not made in {module}")


# Classes and their members.


def _class(dotted: str, cls: type, shown: Shown) -> Iterator[str]:
    module, _, name = dotted.rpartition(".")
    is_a = " and ".join(f"`{base}`" for base in _bases(cls))
    yield f"From `{module}`." + (f" Also {is_a}." if is_a else "")
    if shown.made:
        yield from _constructor(name, cls)
    yield from paragraphs(_documented(cls, name))
    for base in () if shown.alone else _unlisted(cls):
        yield from paragraphs(_documented(base, base.__name__))
    if issubclass(cls, IntEnum):
        yield "\n".join(f"- `{member.name}` = {member.value}" for member in cls)
        return
    if (dataclasses.is_dataclass(cls) and not shown.made) or hasattr(cls, "_fields"):
        yield _code("\n".join(f"{field}: {kind}" for field, kind, _ in fields(cls)))
    for member, value in _members(cls, shown):
        yield from _member(name, member, value)


def _bases(cls: type) -> Iterator[str]:
    """What else it is, as far as a reader can catch or pass it as that."""
    for base in cls.__bases__:
        if base.__name__.startswith("_"):
            yield from _bases(base)
        elif base.__name__ not in _NO_NEWS and base not in _unlisted(cls):
            yield base.__name__


def _unlisted(cls: type) -> list[type]:
    """The bases whose members and words are shown as its own, since they have no entry."""
    return [
        base
        for base in cls.__mro__[1:]
        if _is_ours(base) and not base.__name__.startswith("_") and base.__name__ not in _ALONE
    ]


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == OURS


def _members(cls: type, shown: Shown) -> Iterator[tuple[str, Any]]:
    seen = set(shown.hidden)
    for owner in [cls, *_unlisted(cls)]:
        for member, value in vars(owner).items():
            public = not member.startswith("_") or member in _SPECIAL
            if public and member not in seen and _has_own_text(value):
                seen.add(member)
                yield member, value


def _has_own_text(value: Any) -> bool:
    kinds = (property, cached_property, classmethod, staticmethod)
    function = inspect.isfunction(value) or isinstance(value, kinds)
    return function and bool(value.__doc__)


def _member(cls: str, member: str, value: Any) -> Iterator[str]:
    if member in _SPECIAL:
        yield f"### {_SPECIAL[member]} {cls}"
        yield from paragraphs(value.__doc__)
        return
    yield f"### {cls}.{member}"
    if isinstance(value, property | cached_property):
        function = value.fget if isinstance(value, property) else value.func
        returns = definition(function).returns
        yield _code(f"{member}: {type_text(returns)}" if returns else member)
    elif isinstance(value, classmethod | staticmethod):
        yield _code("@classmethod\n" + signature(value.__func__, member))
    else:
        yield _code("\n\n".join(signatures(value, member)))
    yield from paragraphs(value.__doc__)


def _constructor(name: str, cls: type) -> Iterator[str]:
    if dataclasses.is_dataclass(cls):
        by_name = {field.name for field in dataclasses.fields(cls) if field.kw_only}
        texts = [parameter(*field) for field in fields(cls) if field[0] not in by_name]
        texts += ["*"] * bool(by_name)
        texts += [parameter(*field) for field in fields(cls) if field[0] in by_name]
        yield _code(call(name, texts, ""))
        return
    made = inspect.getattr_static(cls, "__init__")
    if inspect.isfunction(made) and made.__module__.startswith(OURS):
        text = signature(made, name)
        yield _code(text.removeprefix("def ").removesuffix(" -> None"))


def _documented(found: Any, name: str) -> str:
    if not found.__doc__:
        raise ValueError(f"{name} is public and has no docstring")
    return str(found.__doc__)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"
