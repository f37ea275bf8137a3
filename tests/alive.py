"""The objects of this process that may hold something a test made, for tests that search them.

Whatever a test may have changed or made is among them. Left out is what was there when tests
had been collected and cannot have changed since, and pytest's notes on each test.
"""

import gc
import types
from typing import Any, Final

# What never changes once it is made, neither itself nor in what it refers to.
_ATOMS: Final = frozenset(
    {bool, bytes, complex, float, int, str, types.CodeType, type(None), type(...)}
)
# What refers to the same objects for ever. These may change.
_FIXED: Final = frozenset(
    {
        frozenset,
        tuple,
        types.BuiltinFunctionType,
        types.ClassMethodDescriptorType,
        types.GenericAlias,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.MethodDescriptorType,
        types.MethodWrapperType,
        types.UnionType,
        types.WrapperDescriptorType,
    }
)
# What pytest keeps for each of some 18,000 tests: two thirds of all objects there are.
_NOTES: Final = frozenset(
    {
        "CallSpec",
        "CallSpec2",
        "FuncFixtureInfo",
        "Function",
        "NodeId",
        "NodeKeywords",
        "Stash",
        "TopRequest",
    }
)

# The ids of what was there before any test ran, with nothing in it that was not. They are nobody
# else's: what they belong to is kept.
settled: set[int] = set()

_before: list[object] = []
_kept: list[object] = []


def note_what_is_there() -> None:
    """Take from the collector's work what the collection of tests has made: it stays to the end.

    That saves a third of a second of each `gc.collect()`, and of each search for what is left.
    """
    gc.collect()
    there = gc.get_objects()
    notes = [thing for thing in there if _is_a_note(thing)]
    left_out = {id(thing) for thing in (*notes, settled, _before, _kept)}
    left_out.update(id(t) for t in gc.get_referents(*notes) if type(t) in (dict, list, set, tuple))
    _before[:] = (t for t in there if id(t) not in left_out and not _is_fixed(t))
    holders = list(_before)
    while holders:
        inner = []
        for held in gc.get_referents(*holders):
            if type(held) in _ATOMS or _is_settled(held):
                if id(held) not in settled:
                    settled.add(id(held))
                    _kept.append(held)
            elif type(held) in (dict, tuple) and not gc.is_tracked(held):
                inner.append(held)
        holders = inner
    gc.freeze()


def alive() -> list[Any]:
    """What the collector knows of, garbage aside, and what it was relieved of above."""
    gc.collect()
    things = gc.get_objects()
    things += _before
    return things


def _is_a_note(thing: object) -> bool:
    kind = type(thing)
    return kind.__name__ in _NOTES and str(kind.__module__).startswith("_pytest.")


def _is_fixed(thing: object) -> bool:
    """Whether nothing new can be reached through it, but through others that are searched."""
    return type(thing) in _FIXED and all(
        gc.is_tracked(held) or type(held) in _ATOMS for held in gc.get_referents(thing)
    )


def _is_settled(thing: object) -> bool:
    return type(thing) is tuple and all(type(held) in _ATOMS for held in thing)
