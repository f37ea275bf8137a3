"""Tests of node/protocol/errors.py: all errors have one base class."""

import parley.errors
from parley import ParleyError


def test_every_public_error_derives_from_one_root() -> None:
    values = vars(parley.errors).values()
    errors = [v for v in values if isinstance(v, type) and issubclass(v, Exception)]
    assert len(errors) > 40
    assert [error.__name__ for error in errors if not issubclass(error, ParleyError)] == []


def test_the_names_of_errors_say_what_they_are() -> None:
    names = [n for n, v in vars(parley.errors).items() if isinstance(v, type) and n != "Exception"]
    assert [name for name in names if not name.endswith(("Error", "Timeout", "Refused"))] == []
