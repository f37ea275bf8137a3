"""Generate the API pages of the docs site from the docstrings.

`build_site` writes them below build/docs; they are not in git. `reference_pages` lists the public
names of each page.
"""

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from typing import Any, Final

from docs.docstring_markdown import paragraphs, summary
from docs.reference_pages import PAGES, Page
from docs.reference_shown import SHOWN, Shown
from docs.signatures import (
    call,
    definition,
    fields,
    parameter,
    signature,
    signatures,
    type_text,
)

DIRECTORY: Final = "docs/reference/api"
OURS: Final = "parley"
LISTED: Final = {name.rpartition(".")[2] for page in PAGES.values() for name in page.names}
# Bases with an entry of their own, which pages of subclasses don't repeat; a reader of Node's page
# looks there for what it offers.
_ALONE: Final = LISTED - {"Registrar"}
_NO_NEWS: Final = ("object", "tuple", "Protocol", "IntEnum", "bytes", "Exception", "Generic")
_SPECIAL: Final = {
    "__aenter__": "async with",
    "__anext__": "async for",
    "__iter__": "for",
}


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
    parts.append(f"How to use it: [{page.howto}.md](../../howto/{page.howto}.md).")
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
