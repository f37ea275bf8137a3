"""How tests are distributed to processes: a group as a whole, others in pieces of a file.

The distribution only affects speed. `xdist_group` is part of a test's node ID, but pytest 9.2 has
changed node IDs, and pytest-xdist 3.8 doesn't see the group: it would start a Spark in every
process. Groups are therefore the places of their tests.
"""

from collections import Counter
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # it has no types

# Where the tests of each group are. The first is the longest chain there is, and begins.
GROUPS: Final = {
    "spark": "tests/pipeline/",
    "lightbus": "tests/interop/test_lightbus",
    "bare": "tests/node/cli/test_without_extras",
}
# Tests of one file that are given out at once. One by one, 18,000 cost the scheduler half a
# minute of a core: after each it counts all that it has given out so far.
PIECE: Final = 8


def import_share(config: pytest.Config) -> None:
    """In one of the processes that share the tests, import a share of their modules.

    All processes import all modules in the same order. In a fresh clone each would compile every
    one, 15 s of its time, while this way another process has already compiled most. Import errors
    are reported when the tests are collected.
    """
    worker: dict[str, str | int] | None = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    first, count = int(str(worker["workerid"]).removeprefix("gw")), int(worker["workercount"])
    for place in config.args:
        for path in sorted((config.rootpath / place).rglob("test_*.py"))[first::count]:
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


def group_of(nodeid: str) -> str | None:
    """The group that a test belongs to."""
    return next((name for name, place in GROUPS.items() if nodeid.startswith(place)), None)


def in_order(items: list[pytest.Item]) -> None:
    """Put what takes longest first.

    Raises:
        UsageError: a test is marked as one of a group, and is elsewhere.
    """
    for item in items:
        for mark in item.iter_markers("xdist_group"):
            if mark.args != (group_of(item.nodeid),):
                raise pytest.UsageError(f"{item.nodeid}: not where {mark.args} are")
    items.sort(key=lambda item: group_of(item.nodeid) != "spark")


class Shares(LoadGroupScheduling):  # type: ignore[misc]  # as above
    """`--dist=loadgroup`, with our groups, and the others in pieces."""

    pieces: dict[str, str] | None = None

    def remove_node(self, node: Any) -> str | None:
        """Return the test that ended a process, and share out the others that it had.

        pytest-xdist's own method would run that test again, and end all processes one by one.
        """
        work: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        left = [(unit, test) for unit, tests in work.items() for test in tests if not tests[test]]
        if not left:
            return None
        (unit, ended), *others = left
        work[unit][ended] = True
        self.workqueue.update((unit, work[unit]) for unit, _ in others)
        for other in self.assigned_work:
            self._reschedule(other)
        return ended

    def _split_scope(self, nodeid: str) -> str:
        """The name of what a test is given out with."""
        if self.pieces is None:
            self.pieces = pieces(next(iter(self.registered_collections.values())))
        return self.pieces[nodeid]


def pieces(collected: list[str]) -> dict[str, str]:
    """Return the name of each test's group or piece."""
    counts: Counter[str] = Counter()
    found = {}
    for test in collected:
        path = test.partition("::")[0]
        found[test] = group_of(test) or f"{path}, piece {counts[path] // PIECE}"
        counts[path] += 1
    return found
