"""Tests of tests/alive.py: what was there before any test is searched for what was put into it."""

import gc
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.alive import alive, settled

pytestmark = pytest.mark.slow


class Marked:
    """What is looked for; the collector tracks it."""


class Slotted:
    __slots__ = ("held",)
    shared: ClassVar[dict[str, object]] = {}


def function() -> None:
    return


def closure() -> tuple[Callable[[object], None], Callable[[], object]]:
    held: object = None

    def put(thing: object) -> None:
        nonlocal held
        held = thing

    return put, lambda: held


@lru_cache
def remembered(thing: object) -> object:
    return thing


def suspended() -> Iterator[None]:
    held: Any = None
    while True:
        held = yield held


# How the texts begin that are looked for.
PUT_INTO = "put into "

# All of it was there when tests were collected.
LIST: list[object] = []
DICT: dict[object, object] = {}
IN_A_TUPLE: tuple[dict[object, object], str] = ({}, "beside")
IN_TUPLES: tuple[tuple[dict[object, object]]] = (({},),)
BYTES = (bytearray(), "beside")
PUT, _ = closure()
SLOTTED = Slotted()
ATTRIBUTES = SimpleNamespace()
GENERATOR: Any = suspended()
next(GENERATOR)

PLACES: dict[str, Callable[[Any], object]] = {
    "a list": LIST.append,
    "a dict": lambda thing: DICT.update(a=thing),
    "a key": lambda thing: DICT.update({(thing, 1): 1}),
    "a dict in a tuple": lambda thing: IN_A_TUPLE[0].update(a=thing),
    "a dict in tuples": lambda thing: IN_TUPLES[0][0].update(a=thing),
    "a slot": lambda thing: setattr(SLOTTED, "held", thing),
    "an attribute": lambda thing: setattr(ATTRIBUTES, "held", thing),
    "an attribute of a class": lambda thing: setattr(Marked, "held", thing),
    "a dict of a class": lambda thing: Slotted.shared.update(a=thing),
    "an attribute of a function": lambda thing: setattr(function, "held", thing),
    "a default": lambda thing: setattr(function, "__defaults__", (thing,)),
    "a closure": PUT,
    "a cache": remembered,
    "a generator": GENERATOR.send,
    "a global": lambda thing: globals().update(held=thing),
}


def test_what_is_put_into_something_old_is_reached() -> None:
    # No name here refers to a text: it would be reached through that.
    assert reached_in() == set()
    for where, put in PLACES.items():
        put(PUT_INTO + where)
    assert reached_in() == set(PLACES)


def test_bytes_that_change_are_reached() -> None:
    BYTES[0].extend(b"changed")
    assert any(type(thing) is bytearray and thing == b"changed" for thing in reached())


def test_what_is_new_is_reached() -> None:
    new = Marked()
    assert any(thing is new for thing in alive())


def reached_in() -> set[str]:
    """Where a text was put that is reached."""
    texts = (thing for thing in reached() if type(thing) is str)
    return {text.removeprefix(PUT_INTO) for text in texts if text.startswith(PUT_INTO)}


def reached() -> list[object]:
    """All that what is alive refers to, as those who search go on from it."""
    found: list[object] = []
    holders = [thing for thing in alive() if thing is not found]
    while holders:
        held = [thing for thing in gc.get_referents(*holders) if id(thing) not in settled]
        found += held
        inner = {id(t): t for t in held if type(t) in (dict, tuple) and not gc.is_tracked(t)}
        holders = list(inner.values())
    return found
