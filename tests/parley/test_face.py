"""The public modules: their names, and the modules that `import parley` does not load."""

import subprocess
import sys
from typing import assert_type

import pytest

import parley
import parley._node.node
from parley import Node

# Loaded on first use: the bus, other dialects, the pipeline and the command line.
HEAVY = (
    "parley._node.bus",
    "parley._node.bus.remote",
    "parley._node.cli",
    "parley._node.settings",
    "parley._node.testing",
    "parley._pipeline",
)
PROGRAM = """
import sys
def loaded(*names):
    print([m for m in sys.modules if m.startswith(names)])
import parley
loaded("parley._", "anyio")
from parley import Node, Identity
loaded(*sys.argv[1:])
"""


@pytest.mark.process
def test_it_loads_what_is_used() -> None:
    dialects = [f"parley._node.gateways.{name}" for name in ("named", "relay", "simproto")]
    others = ["coredis", "jsonschema", "pyspark", "rich", "sqlite3", "typed_settings", "click"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *HEAVY, *dialects, *others],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n[]\n", "")


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "needed", "extra"),
    [
        ("console", "starlette", "console"),
        ("telemetry", "opentelemetry", "metrics"),
        ("telemetry", "prometheus_client", "metrics"),
        ("pipeline", "pyarrow", "pipeline"),
    ],
)
def test_a_missing_extra_is_named(module: str, needed: str, extra: str) -> None:
    program = f"import sys; sys.modules[{needed!r}] = None; import parley.{module}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=25, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: parley.{module} ({needed}")
    assert f"needs the extra '{extra}'" in last


def test_its_names_are_the_classes_themselves() -> None:
    assert_type(Node, type[parley._node.node.Node])
    assert Node is parley.Node is parley._node.node.Node


def test_it_lists_all_that_it_has() -> None:
    names = parley.__all__
    assert sorted(set(names)) == sorted(names)
    assert set(names) <= set(dir(parley))
    everything: dict[str, object] = {}
    exec("from parley import *", everything)  # noqa: S102 - the only way to import all names
    assert everything.keys() - {"__builtins__"} == set(names)


@pytest.mark.parametrize("name", ["Nobody", "_nobody", "__wrapped__"])
def test_missing_name_raises_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'parley' has no attribute '{name}'"):
        getattr(parley, name)
