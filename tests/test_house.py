"""The house: no module is in a circle of imports, a late import has its reason, a class name means
one class, and what people read of the code is plain English."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("lbm", "crypto", "node", "pipeline", "parley")

STORE = "a bus imports the store that it has and not the other"
NO_BUS = "nodes and commands without a bus start without one"
SCHEMAS = "jsonschema is of the extra `bus`"
LOOP = "trio need not be installed, and asyncio is not imported under it"
SPARK = "Spark is of the extra `pipeline`"
CONSOLE = "Starlette is of the extra `console`, and few nodes have one"
SOON = "few commands need it, and all of them are to start soon"
FAILED = "it explains an import that failed"

# Each import inside of a function, and why it stands there.
METRICS = "what tells metrics is of the extra `metrics`"
LATE = {
    ("node.bus.bus_address", "node.bus.redis.redis_store"): STORE,
    ("node.bus.bus_address", "node.bus.sqlite.sqlite_store"): STORE,
    ("node.bus.schemas", "jsonschema.exceptions"): SCHEMAS,
    ("node.bus.schemas", "jsonschema.validators"): SCHEMAS,
    ("node.bus.schemas", "referencing"): SCHEMAS,
    ("node.bus.schemas", "referencing.exceptions"): SCHEMAS,
    ("node.bus.schemas", "referencing.jsonschema"): SCHEMAS,
    ("node.cli.chat.screen", "node.cli.chat.editor"): "prompt_toolkit is slow to import",
    ("node.cli.journal.export", "node.cli.journal.parquet"): "pyarrow is of the extra `pipeline`",
    ("node.cli.exits", "node.trust.known_peers"): SOON,
    ("node.cli.main", "importlib.metadata"): SOON,
    (
        "node.cli.topics.offered_names",
        "node.cli.topics.asking_offers",
    ): SOON,
    ("node.cli.output", "node.cli.terminal"): SOON,
    ("node.cli.output", "node.trust.petnames"): SOON,
    ("node.cli.pipeline.commands", "pipeline.jobs"): SPARK,
    ("node.cli.pipeline.commands", "pipeline.report.writing"): SPARK,
    ("node.cli.pipeline.session", "pipeline.again"): SPARK,
    ("node.cli.pipeline.session", "pipeline.checkpoint"): SPARK,
    ("node.cli.pipeline.session", "pipeline.gold.cluster"): SPARK,
    ("node.cli.pipeline.session", "pipeline.spark"): SPARK,
    ("node.cli.pipeline.session", "pipeline.tables"): SPARK,
    ("node.cli.pipeline.session", "py4j.protocol"): SPARK,
    ("node.cli.pipeline.session", "pyspark.errors"): SPARK,
    ("node.cli.serve.console", "node.cli.doctor.running"): CONSOLE,
    ("node.cli.serve.console", "node.web.console.console"): CONSOLE,
    ("node.cli.serve.console", "node.web.console.serving"): CONSOLE,
    ("node.cli.serve.metrics", "node.handlers.tracing"): METRICS,
    ("node.cli.serve.metrics", "node.metrics.otel"): METRICS,
    ("node.cli.serve.metrics", "node.web.metrics"): METRICS,
    ("node.cli.serve.metrics", "node.web.server"): METRICS,
    ("node.discovery.discovery", "node.discovery.mdns"): "zeroconf is of the extra `discovery`",
    ("node.links.requests", "node.links.link_store"): NO_BUS,
    ("node.offering", "node.remote_bus.buses"): NO_BUS,
    ("node.peer.peer", "node.remote_bus.remote_store"): NO_BUS,
    ("node.settings.journal", "node.journal.journal"): "nodes without a journal start without one",
    (
        "node.typed.data_type",
        "node.typed.conversion",
    ): "programs without types start faster",
    ("node.transport.ground", "node.transport.asyncio_backend"): LOOP,
    ("node.transport.ground", "node.transport.trio_backend"): LOOP,
    ("parley", "parley.shadows"): FAILED,
    ("parley.__main__", "node.cli.completion.answering"): "signals are handled before any import",
    ("parley.__main__", "node.cli.main"): "signals are handled before the slow imports begin",
    ("parley.__main__", "parley.shadows"): FAILED,
}

# anyio finds the event loop only in a task: callbacks of the loop run outside of all tasks, and
# these raise NoEventLoopError there. (A lock, an event or a semaphore can be made there: it finds
# its loop when it is first waited for.)
NEED_A_TASK = {
    *("CancelScope", "create_task_group", "fail_after", "move_on_after"),
    *("current_effective_deadline", "current_time", "current_token", "get_cancelled_exc_class"),
}
# These packages have tasks only, and no callbacks.
TASKS_ONLY = ("node.apps.", "node.cli.", "node.testing.", "node.web.")
# The functions elsewhere that use them and are no coroutines. Only coroutines call these functions.
CALLED_IN_TASKS = {
    ("node.bus.consumers.group_consumer", "describe"),
    ("node.transport.ground", "running_library"),
    ("node.transport.trio_backend", "spawn"),  # on trio callbacks run in a task
}

# "For who asks", "is no number", "there is none"; "there is no room" is English.
UNIDIOMATIC = re.compile(
    r"\b(?:for|of|to|by|from|against) who (?!may |talks)[a-z]+"
    r"|(?<![Tt]here )\b(?:is|are|was|were) no (?!longer|more|less|later|older|such)[a-z]"
    r"|\b[Tt]here (?:is|are) none\b|[Nn]obody notices|[Nn]ever mind"
)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the five packages, by name."""
    found = {}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = ast.parse(file.read_text("utf-8"))
    return found


@cache
def imports() -> dict[str, list[tuple[str, bool]]]:
    """What each module imports, for type checking too, and whether inside of a function."""
    return {name: list(_imports(tree, late=False)) for name, tree in modules().items()}


def _imports(above: ast.AST, *, late: bool) -> Iterator[tuple[str, bool]]:
    for node in ast.iter_child_nodes(above):
        if isinstance(node, ast.Import):
            yield from ((name.name, late) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                inside = f"{node.module}.{name.name}"
                yield (inside if inside in modules() else str(node.module)), late
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(node, late=late or is_function)


def circle() -> list[str]:
    """Modules of which each imports the next, the last being the first again; or nothing."""
    graph = {
        name: {other for other, _ in found if other != name and other in modules()}
        for name, found in imports().items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert len(modules()) > 300
    assert circle() == []


def test_every_late_import_has_its_reason() -> None:
    late = {(name, other) for name, found in imports().items() for other, late in found if late}
    assert sorted(late) == sorted(LATE)


def outside_coroutines(module: ast.Module) -> set[str]:
    """The functions of a module that use anyio's names in `NEED_A_TASK` and are no coroutines."""
    imported = {
        name.asname or name.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anyio")
        for name in node.names
    }
    found = set()

    def search(above: ast.AST, function: str | None) -> None:
        for node in ast.iter_child_nodes(above):
            inside = function
            if isinstance(node, ast.AsyncFunctionDef):
                inside = None
            elif isinstance(node, ast.FunctionDef):
                inside = node.name
            elif isinstance(node, ast.Lambda):
                inside = "lambda"
            called = node.func if isinstance(node, ast.Call) else None
            match called:
                case ast.Attribute(ast.Name("anyio"), name) if name in NEED_A_TASK and inside:
                    found.add(inside)
                case ast.Name(name) if name in NEED_A_TASK & imported and inside:
                    found.add(inside)
            search(node, inside)

    search(module, "module")
    return found


def test_what_needs_a_task_is_used_in_coroutines() -> None:
    found = {
        (name, function)
        for name, module in modules().items()
        if not name.startswith(TASKS_ONLY)
        for function in outside_coroutines(module)
    }
    assert found == CALLED_IN_TASKS


def test_what_is_used_outside_of_coroutines_is_found() -> None:
    source = """
import anyio
from anyio import move_on_after
async def coroutine():
    anyio.CancelScope()
    return lambda: anyio.current_time()
def callback():
    with move_on_after(1):
        pass
def another():
    anyio.Lock()
"""
    assert outside_coroutines(ast.parse(source)) == {"lambda", "callback"}


def test_a_class_name_means_one_class() -> None:
    homes = defaultdict(set)
    for name, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(name)
    several = {name: sorted(places) for name, places in homes.items() if len(places) > 1}
    assert several == {}


def test_the_code_is_written_in_plain_english() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {hit}"
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for hit in UNIDIOMATIC.findall(file.read_text("utf-8"))
    ]
    assert found == []


def test_what_is_not_plain_is_found() -> None:
    for text in ("kept for who asks", "'x' is no number", "None if there is none"):
        assert UNIDIOMATIC.search(text)
    for text in ("who asks is known", "is no longer open", "there is no room", "is not a number"):
        assert not UNIDIOMATIC.search(text)


def test_only_one_function_reads_strerror() -> None:
    """It is None where an OSError was made with a text alone."""
    reads = {
        name
        for name, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute) and node.attr == "strerror"
        if ast.unparse(node) != "os.strerror"
    }
    assert reads == {"node.errors"}
