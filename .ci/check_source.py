"""Check rules of the source that ruff and import-linter cannot express.

    python .ci/check_source.py

Prints each violation as `path: rule: what`, and exits with 1 if there is one that `ALLOWED` does
not name, or if `ALLOWED` names one that is no longer there. Also exits with 1 if the tests use
more private names than `PRIVATE_IN_TESTS`.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("crypto", "lbm", "node", "parley", "pipeline", "benchmarks", "docs", "examples")

# What the rules report and may stay for now. Remove an entry together with the code that it allows.
ALLOWED = {
    # Spark offers no other way to its Java process.
    "pipeline/spark.py: private API: ._gateway",
    # Only coroutines call the first two; on trio, callbacks run in a task.
    "node/bus/consumers/group_consumer.py: needs a task: describe",
    "node/transport/task_scope.py: needs a task: running_library",
    "node/transport/trio_backend.py: needs a task: spawn",
    # A self-test with fixed keys that protect nothing.
    "crypto/selftest.py: compared in variable time: hashing.digest(b'abc').hex() != expected",
    "crypto/selftest.py: compared in variable time: ours.derive(share) == secret",
    # The first lines of files.
    "crypto/keyfile.py: label in no document: parley1 auditor key",
    "crypto/keyfile.py: label in no document: parley1 key file",
    "crypto/keyfile.py: label in no document: parley1 recovery file",
    "node/trust/statement_file.py: label in no document: parley1 statement",
    # Filled in when the store has answered, for all callers that share the request.
    "node/bus/batcher.py: never assigned by its class: _Share.answer",
    # Applications inherit from it.
    "node/handlers/registry.py: has one subclass only: Namespace <- Chess",
    # Streams are created by their table, and those of tunnels by the tunnel.
    "node/remote/stream.py: has one subclass only: Stream <- TunnelStream",
    # The function that returns a text in any case.
    "lbm/errors.py: reads strerror",
}

# Documented, although their names begin with an underscore.
DOCUMENTED = {
    *("_asdict", "_field_defaults", "_fields", "_make", "_replace"),  # NamedTuple
    *("_exit", "_current_frames"),  # of os and sys
}

# Packages whose names begin with an underscore.
INTERNAL_PACKAGES = {"_crypto", "_lbm", "_node", "_pipeline"}
# The number of places in the tests that use a private name. Lower it when the count falls.
PRIVATE_IN_TESTS = 113

# anyio finds the event loop only in a task: callbacks run outside of all tasks, where these raise
# NoEventLoopError. (Locks, events and semaphores find their loop when they are first awaited.)
NEED_A_TASK = {
    *("CancelScope", "create_task_group", "fail_after", "move_on_after"),
    *("current_effective_deadline", "current_time", "current_token", "get_cancelled_exc_class"),
}
# These packages have tasks only, and no callbacks.
TASKS_ONLY = ("node/apps/", "node/cli/", "node/testing/", "node/web/", "benchmarks/", "examples/")

SECRET = re.compile(
    r"\b\w*(mac|tag|seal|signature|secret|digest|chain|commit|exporter|passphrase|private|hs)\b"
)
# Sizes, numbers and names are public, and so are constants.
PUBLIC = re.compile(r"len\([^()]*\)|\b[A-Z_.]*[A-Z]\w*\b|'[^']*'|\w+_(size|delay)")

# The annotations in subclasses of these are fields.
FIELD_BASES = {"NamedTuple", "Protocol", "Struct", "TypedDict"}

_LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
Trees = dict[str, ast.Module]


def parsed(packages: Iterable[str] = PACKAGES) -> Trees:
    """Parse every file of the packages, by its path."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.resolve() == path  # not through the links in `parley`
    }


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in DOCUMENTED


def defined(tree: ast.AST) -> Iterator[str]:
    """The private names that a file defines: functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.Name(name, ast.Store()):
                yield name
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                yield name


def private_api(trees: Trees) -> Iterator[str]:
    """Imports and attributes of other people's packages whose names begin with an underscore.

    Our own private attributes are used in the file that defines them, or through `self`; any other
    private attribute belongs to somebody else.
    """
    own = {path: set(defined(tree)) for path, tree in trees.items()}
    all_own = set().union(*own.values())
    for path, tree in trees.items():
        for node in ast.walk(tree):
            names: list[str] = []
            match node:
                case ast.Import(aliases):
                    names = [alias.name for alias in aliases]
                case ast.ImportFrom(str(module), aliases):
                    names = [f"{module}.{alias.name}" for alias in aliases]
                case ast.Attribute(ast.Name("self" | "cls"), name) if name not in all_own:
                    names = [f".{name}"]
                case ast.Attribute(ast.Name("self" | "cls")):
                    pass
                case ast.Attribute(_, name) if name not in own[path]:
                    names = [f".{name}"]
                case ast.Call(
                    ast.Name("getattr" | "setattr" | "hasattr" | "delattr"),
                    [_, ast.Constant(str(name)), *_],
                ) if name not in own[path]:
                    names = [f".{name}"]
            for name in names:
                if not name.startswith("parley.") and any(map(is_private, name.split("."))):
                    yield f"{path}: private API: {name}"


def private_in_tests(trees: Trees) -> Iterator[str]:
    """Private attributes and imports that tests use of objects other than their own `self`."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            names: list[str] = []
            match node:
                case ast.ImportFrom(_, aliases):
                    names = [alias.name for alias in aliases]
                case ast.Attribute(ast.Name("self" | "cls")):
                    pass
                case ast.Attribute(_, name):
                    names = [name]
            for name in names:
                if is_private(name) and name not in INTERNAL_PACKAGES:
                    yield f"{path}:{node.lineno}: private name in a test: {name}"


def over_limit(private: list[str]) -> list[str]:
    """Return the lines to print if the tests use more private names than the limit."""
    if len(private) <= PRIVATE_IN_TESTS:
        return []
    summary = (
        f"tests: {len(private)} private names, at most {PRIVATE_IN_TESTS} allowed: test public "
        "behaviour, or add a function to tests/inspection.py"
    )
    return [*private, summary]


def outside_tasks(trees: Trees) -> Iterator[str]:
    """Functions other than coroutines that use what anyio allows in tasks only."""
    for path, tree in trees.items():
        if path.startswith(TASKS_ONLY):
            continue
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anyio")
            for alias in node.names
        }
        for function in _calling(tree, "module", NEED_A_TASK, NEED_A_TASK & imported):
            yield f"{path}: needs a task: {function}"


def _calling(above: ast.AST, inside: str, names: set[str], imported: set[str]) -> Iterator[str]:
    """The functions that call `anyio.NAME`, or NAME where it was imported."""
    for node in ast.iter_child_nodes(above):
        function = inside
        match node:
            case ast.AsyncFunctionDef():
                function = ""
            case ast.FunctionDef(name):
                function = name
            case ast.Lambda():
                function = "lambda"
            case ast.Call(ast.Attribute(ast.Name("anyio"), name)) if name in names and inside:
                yield inside
            case ast.Call(ast.Name(name)) if name in imported and inside:
                yield inside
        yield from _calling(node, function, names, imported)


def compared_secrets(trees: Trees) -> Iterator[str]:
    """Comparisons of secrets with operators, whose duration depends on the secret."""
    for path, tree in trees.items():
        if not path.startswith(("crypto/", "node/protocol/")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
                sides = (ast.unparse(side) for side in (node.left, *node.comparators))
                if any(SECRET.search(PUBLIC.sub("", side)) for side in sides):
                    yield f"{path}: compared in variable time: {ast.unparse(node)}"


def undocumented_labels(trees: Trees) -> Iterator[str]:
    """Labels and domains that separate the uses of keys and hashes, and are in no document."""
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/protocol/*.md")]
    documents = "".join(path.read_text("utf-8") for path in sorted(pages))
    for path, tree in trees.items():
        for node in ast.walk(tree):
            found: object = None
            match node:
                case ast.Constant(bytes(domain)) if domain.startswith(b"parley1"):
                    found = domain.decode().strip()
                case ast.Call(ast.Name("label"), [_, _, ast.Constant(name), *_]):
                    found = name
                case ast.Call(ast.Name("label"), [_, _, name, *_]):
                    found = ast.unparse(name)
            if found is not None and f'"{found}' not in documents:
                yield f"{path}: label in no document: {found}"


def strerrors(trees: Trees) -> Iterator[str]:
    """Uses of `strerror`, which is None where an OSError was made with a text alone."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            is_read = isinstance(node, ast.Attribute) and node.attr == "strerror"
            if is_read and ast.unparse(node) != "os.strerror":
                yield f"{path}: reads strerror"


def unnamed_events(trees: Trees) -> Iterator[str]:
    """Log calls that don't name their event."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Attribute(logger, level), arguments, keywords):
                    of = ast.unparse(logger if level != "log" else (arguments or [logger])[0])
                    is_log = level in _LEVELS
                    is_log = is_log and bool(re.fullmatch(r"(\w+\.)*_?(logger|log|access)", of))
                    if is_log and not any(keyword.arg == "extra" for keyword in keywords):
                        yield f"{path}: log event without a name: {ast.unparse(node)[:60]}"


def uncompilable(trees: Trees) -> Iterator[str]:
    """What a compiled core does not do as an uncompiled one does."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pyproject_hook = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    hook = {
        # Without the link that leads to a folder: parley/_node/errors.py is node/errors.py.
        key: [path.replace("parley/_", "") for path in pyproject_hook[key]]
        for key in ("packages", "pure", "also")
    }
    for path in (*hook["pure"], *hook["also"]):
        if not (ROOT / path).is_file():
            yield f"pyproject.toml: no such file: {path}"
    folders = tuple(f"{package}/" for package in hook["packages"])
    core = {
        path: tree
        for path, tree in trees.items()
        if (path.startswith(folders) and path not in hook["pure"]) or path in hook["also"]
    }
    for path, tree in core.items():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                types = defaultdict(set)
                for node in ast.walk(function):
                    if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                        types[node.name].add(ast.unparse(node.type))
                for name in (name for name, of in types.items() if len(of) > 1):
                    yield f"{path}: errors of two types have one name: {function.name}, {name}"
    made = {name for tree in core.values() for name, _ in _classes(tree)}
    for path in trees.keys() - core.keys():
        for name, bases in _classes(trees[path]):
            for base in bases & made:
                yield f"{path}: inherits from a compiled class: {name}({base})"


def _classes(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """The classes of a file with their bases, except errors: these can be inherited from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.endswith("Error"):
            yield node.name, {ast.unparse(base).partition("[")[0] for base in node.bases}


def documents(trees: Trees) -> Iterator[str]:
    """Files and functions in documents that do not exist, and internal imports in documents for
    users."""
    # `build` is made by the docs site while this runs.
    tops = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "build")
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        for place in re.findall(rf"`((?:{tops})/[\w/.]*[a-z])`", text):
            if not (ROOT / place).exists() and name != "CHANGELOG.md":
                yield f"{name}: no such file: {place}"
        for place, function in re.findall(r"`([\w/]+\.py)`: `([\w.]+)`", text):
            if place in trees and not _has(trees[place], function.split(".")):
                yield f"{name}: no such function: {place}: {function}"
        if name not in ("CONTRIBUTING.md", "docs/architecture.md"):
            for line in re.findall(r"^ *(?:from|import) parley\._.*", text, re.MULTILINE):
                yield f"{name}: internal import: {line.strip()}"


def _has(tree: ast.Module | ast.stmt, parts: list[str]) -> bool:
    """Whether a file has a function, or a class that has it."""
    if not parts:
        return True
    named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    body: list[ast.stmt] = getattr(tree, "body", [])
    return any(
        isinstance(each, named) and each.name == parts[0] and _has(each, parts[1:]) for each in body
    )


def unassigned_attributes(trees: Trees) -> Iterator[str]:
    """Attributes that a class only declares, so that other code has to assign them."""
    fields = FIELD_BASES | {
        name for tree in trees.values() for name, bases in _classes(tree) if bases & FIELD_BASES
    }
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or _declares_fields(node, fields):
                continue
            assigned = {
                target.attr
                for target in ast.walk(node)
                if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
            }
            for each in node.body:
                match each:
                    case ast.AnnAssign(ast.Name(name), annotation, None) if name not in assigned:
                        if not ast.unparse(annotation).startswith(("ClassVar", "Final")):
                            yield f"{path}: never assigned by its class: {node.name}.{name}"


def _declares_fields(node: ast.ClassDef, fields: set[str]) -> bool:
    """Whether the annotations of a class are fields: of a dataclass, a protocol and the like."""
    bases = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    return bool(bases & fields) or "dataclass" in decorators


def single_subclasses(trees: Trees) -> Iterator[str]:
    """Bases with exactly one subclass, which are often one class that was split.

    A base that is created itself, and a Protocol, are classes of their own.
    """
    subclasses = defaultdict(set)
    defined_in = {}
    for path, tree in trees.items():
        for name, bases in _classes(tree):
            if not bases & FIELD_BASES:
                defined_in[name] = path
            for base in bases:
                subclasses[base.rpartition(".")[2]].add(name)
    used = {
        node.func.id
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    for base, names in subclasses.items():
        if len(names) == 1 and base in defined_in and base not in used:
            yield f"{defined_in[base]}: has one subclass only: {base} <- {next(iter(names))}"


def main() -> int:
    trees = parsed()
    rules = (
        *(private_api, outside_tasks, compared_secrets, undocumented_labels, strerrors),
        *(unnamed_events, uncompilable, documents, unassigned_attributes, single_subclasses),
    )
    found = {line for rule in rules for line in rule(trees)}
    for line in sorted(found - ALLOWED):
        print(line, file=sys.stderr)
    for line in sorted(ALLOWED - found):
        print(f"{line}: no longer found; remove it from ALLOWED", file=sys.stderr)
    excess = over_limit(list(private_in_tests(parsed(["tests"]))))
    for line in excess:
        print(line, file=sys.stderr)
    return int(found != ALLOWED or bool(excess))


if __name__ == "__main__":
    sys.exit(main())
