"""Detect which core runs: the compiled one, or the same source in pure Python.

A test that is marked `pure`, or gives the messaging layer a fake connection, replaces a part of the
core. Compiled parts accept only each other, so the test is skipped there. With `--compiled`, as in
CI, a core that is not compiled fails the whole run.
"""

from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import pytest

# A module of each package that is compiled.
CORE: Final = (
    "parley._lbm.codec",
    "parley._crypto.record_protection",
    "parley._node.protocol.session",
    "parley._node.messaging.requests",
    "parley._node.transport.driver",
    "parley._node.remote.stream",
    "parley._node.peer.subscription",
    "parley._node.handlers.invoke",
    "parley._node.journal.audit.direction",
)
# A substitute for a connection.
STAND_INS: Final = frozenset(
    {
        "tests.node.messaging.fake",
        "tests.node.messaging.line",
        "tests.node.remote.test_stream_inbox",
    }
)


def is_compiled(module: str) -> bool:
    """Whether Python imported C in place of the source."""
    return Path(import_module(module).__file__ or "").name.endswith(tuple(EXTENSION_SUFFIXES))


def configure(config: pytest.Config) -> None:
    """Hold `--compiled` to what runs."""
    if config.getoption("--compiled"):
        pure = [module for module in CORE if not is_compiled(module)]
        if pure:
            raise pytest.UsageError(f"not compiled: {', '.join(pure)}")


def skip_pure(items: list[pytest.Item]) -> None:
    """Skip what needs the pure core, where there is the other one."""
    if is_compiled(CORE[0]):
        for item in items:
            module = vars(getattr(item, "module", None) or object)
            used = {getattr(value, "__module__", None) for value in module.values()}
            if item.get_closest_marker("pure") is not None or used & STAND_INS:
                item.add_marker(pytest.mark.skip(reason="it replaces a part of a compiled core"))
