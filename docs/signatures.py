"""Signatures as the source writes them, with its names for types.

`ast` gives the words, so that they are the same on every version of Python, and `inspect`
the value behind a default that is a constant's name.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast, get_overloads

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
            yield name, type_text(kind), _value(usual[name], None) if name in usual else ""
        return
    for field in dataclasses.fields(cls):
        default = ""
        if field.default is not dataclasses.MISSING:
            default = _value(field.default, None)
        elif field.default_factory is not dataclasses.MISSING:
            made = field.default_factory()
            default = repr(made) if made in ({}, ()) else f"{type(made).__name__}()"
        yield field.name, type_text(kinds[field.name]), default


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
    value = None if default is None else values[argument.arg].default
    is_told = isinstance(default, ast.Constant) and default.value is ...
    text = "" if default is None else _value(value, None if is_told else default)
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


def _value(value: object, source: ast.expr | None) -> str:
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
