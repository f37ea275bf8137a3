"""Names of events, groups and consumers, and idempotency keys."""

from collections.abc import Callable

import pytest

from parley._node.bus import identifiers as names
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import (
    LONGEST_EVENT,
    LONGEST_KEY,
    LONGEST_NAME,
    check_key,
    check_word,
    dead_name,
    split_name,
)
from tests.sweep import sweep


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("auth.user_registered", ("auth", "user_registered")),
        ("my_company.auth.signed-up", ("my_company.auth", "signed-up")),
        ("0.1", ("0", "1")),
    ],
)
def test_a_name_is_of_an_api_and_an_event(name: str, parts: tuple[str, str]) -> None:
    assert split_name(name) == parts
    assert split_name(dead_name(name)) == (name, "dead")


@sweep(
    "name",
    ["", "auth", ".a", "a.", "a..b", "a.*", "a b.c", "a.b:stream", "ä.b", "a.b\n", "-a.b", None, 3],
)
def test_invalid_names(name: object) -> None:
    with pytest.raises(InvalidEventError, match="invalid event name"):
        split_name(name)


def check_group(word: object) -> None:
    check_word("group", word)


@pytest.mark.parametrize(
    ("check", "longest"),
    [
        (lambda text: split_name(f"a.{text[2:]}"), LONGEST_EVENT),
        (lambda text: split_name(f"{text[5:]}.dead"), LONGEST_NAME),
        (check_group, LONGEST_NAME),
        (check_key, LONGEST_KEY),
    ],
)
def test_longest_names(check: Callable[[str], object], longest: int) -> None:
    check("x" * longest)
    with pytest.raises(InvalidEventError) as caught:
        check("x" * (longest + 1))
    assert len(str(caught.value)) < 250


@sweep("word", ["", "two words", "tab\t", "line\n", "bell\a", "größe", None, b"x"])
@sweep("check", [check_group, check_key])
def test_names_are_printable_and_without_spaces(
    check: Callable[[object], None], word: object
) -> None:
    check("shop-mailer/1@host:2")
    with pytest.raises(InvalidEventError):
        check(word)


def test_longest_name_leaves_space_for_the_dead_letter_suffix() -> None:
    assert split_name(dead_name(f"a.{'x' * (LONGEST_EVENT - 2)}"))[1] == "dead"


def test_number_of_cached_names_is_bounded() -> None:
    for number in range(names.REMEMBERED + 1):
        assert split_name(f"a.b{number}") == ("a", f"b{number}")
    assert names._parts.cache_info().currsize == names.REMEMBERED
