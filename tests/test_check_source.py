"""Each rule of `.ci/check_source.py` finds its violations, and accepts correct code."""

import ast
import runpy
from pathlib import Path

import pytest

CHECK = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "check_source.py"))

WRONG = {
    "private_api": [
        "import asyncio._private",
        "from asyncio.tasks import _enter_task",
        "loop._ready.clear()",
        "self._not_ours()",
        "getattr(task, '_must_cancel', False)",
    ],
    "outside_tasks": [
        "def callback():\n    with anyio.move_on_after(1): pass",
        "from anyio import CancelScope\nscope = CancelScope()",
        "async def coroutine():\n    return lambda: anyio.current_time()",
    ],
    "compared_secrets": ["given.mac == expected", "if shared_secret != other: pass"],
    "undocumented_labels": [
        "X = b'parley1 new label'",
        "label(hash, secret, 'new label', b'', 32)",
    ],
    "strerrors": ["print(error.strerror)"],
    "unnamed_events": ["logger.info('x')", "rate.log(logger, logging.INFO, 'x')"],
    "uncompilable": [
        "def f():\n    try: pass\n    except A as error: pass\n    except B as error: pass",
    ],
    "unassigned_attributes": ["class A:\n    other: int", "class A(B):\n    x: int\n    y = 1"],
    "single_subclasses": ["class A: pass\nclass B(A): pass"],
}
RIGHT = """
import anyio
from asyncio import tasks
from os import urandom as _urandom
from parley._node.errors import ParleyError
DOMAIN = b"parley1 chain"
class Own:
    _mac: bytes
    LIMIT: ClassVar[int]
    def __init__(self, mac):
        self._mac = mac
    def is_it(self, other):
        logger.info("x", extra={"event": "a.b"})
        return compare_digest(other._mac, self._mac) and len(mac) == MAC_SIZE
class Fields(TypedDict):
    size: int
class MoreFields(Fields):
    count: int
@dataclass
class Row:
    number: int
class Base: pass
class One(Base): pass
class Two(Base): pass
class Created: pass
class Special(Created): pass
created = Created()
class Seam(Protocol): pass
class Narrow(Seam, Protocol): pass
async def coroutine():
    anyio.CancelScope()
    return row._replace(a=1)
"""


@pytest.mark.parametrize("rule", WRONG)
def test_a_rule_finds_what_it_forbids(rule: str) -> None:
    for source in WRONG[rule]:
        found = list(CHECK[rule]({"node/protocol/x.py": ast.parse(source)}))
        assert any("node/protocol/x.py" in line for line in found), source
    right = CHECK[rule]({"node/protocol/x.py": ast.parse(RIGHT)})
    assert not [line for line in right if "x.py" in line]


def test_a_subclass_of_a_compiled_class_is_found() -> None:
    trees = {"lbm/x.py": "class A: pass", "node/x.py": "class B(A[int]): pass"}
    found = CHECK["uncompilable"]({path: ast.parse(text) for path, text in trees.items()})
    assert "node/x.py: inherits from a compiled class: B(A)" in list(found)


def test_private_names_in_tests_are_counted() -> None:
    counted = ["from parley._node.node import _private", "node._peers.clear()", "super()._dial()"]
    not_counted = ["self._peers.clear()", "row._replace(a=1)", "import parley._node.node"]
    trees = {"tests/x.py": ast.parse("\n".join(counted + not_counted))}
    found = [line.partition(" ")[2] for line in CHECK["private_in_tests"](trees)]
    names = ("_private", "_peers", "_dial")
    assert sorted(found) == sorted(f"private name in a test: {name}" for name in names)


def test_more_private_names_in_tests_than_the_limit_fail() -> None:
    limit = CHECK["PRIVATE_IN_TESTS"]
    assert CHECK["over_limit"](["x"] * limit) == []
    summary = CHECK["over_limit"](["x"] * (limit + 1))[-1]
    assert f"{limit + 1} private names, at most {limit} allowed" in summary
