"""Tests of typed data: models of each kind, LBM values, and errors for mismatches."""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys
from parley._lbm.codec import Encodable, decode, encode
from parley._lbm.errors import LbmEncodeError
from parley._node.data_types import LONGEST_TEXT, MOST_TOLD, data_type, plain_cells
from parley._node.errors import ConfigError, MalformedDataError
from tests.sweep import sweep


@dataclass
class Item:
    name: str
    price: int
    picture: bytes = b""


class Colour(Enum):
    RED = "red"


class Stock(msgspec.Struct):
    items: list[Item]
    shelves: dict[int, str] = {}
    when: datetime | None = None


class Guest(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(default=0, ge=0, alias="years")
    rooms: list[int] = []


class Ticket(TypedDict):
    seat: int
    by: NotRequired[bytes]


@dataclass
class Mixed:
    guest: Guest
    ticket: Ticket
    colour: Colour = Colour.RED
    more: dict[str, Any] = field(default_factory=dict)


def sent(value: Encodable) -> object:
    """Return a value as it is received after sending."""
    return decode(encode({keys.DATA: value}))[keys.DATA]


TEA = Item("tea", 3, b"\0\xff")
WHOLE = [
    (Item, TEA),
    (
        Stock,
        Stock([TEA], {1: "top", 2**64 - 1: "last"}, datetime(2026, 1, 2, tzinfo=UTC)),
    ),
    (Guest, Guest(name="ada", years=36, rooms=[1, 2])),
    (Ticket, {"seat": 4, "by": b"\xff"}),
    (Mixed, Mixed(Guest(name="bob"), {"seat": 1}, more={"a": [1, None]})),
    (list[Item], [TEA, TEA]),
    (dict[str, Guest], {"a": Guest(name="ada")}),
    (Item | None, None),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (UUID, UUID(int=5)),
    (Decimal, Decimal("12.50")),
    (int, -(2**64)),
    (int, 2**64 - 1),
    (float, 1.5),
    (bytes, b"\0\xff"),
    (Annotated[int, msgspec.Meta(ge=1)], 1),
]


@sweep(("hint", "value"), WHOLE, ids=[str(hint) for hint, _ in WHOLE])
def test_a_value_arrives_as_it_was_sent(hint: Any, value: object) -> None:
    kind = data_type(hint)
    assert kind.read(sent(kind.write(value))) == value


MISFITS: list[tuple[Any, Encodable, str]] = [
    (Stock, {"items": [{"name": "a", "price": 1}, {"name": "a", "price": "1"}]},
     "$.items[1].price: Expected int, got str"),
    (Stock, {"items": [], "shelves": {"1": "top"}}, "$.shelves: Expected int, got str (a key)"),
    (Stock, {1: 2}, "$: Expected str (a key)"),
    (Stock, None, "$: Expected object, got null"),
    (Item, {"name": "a"}, "$: Object missing required field price"),
    (Item, {"name": "a", "price": 1, "picture": "AP8="}, "$.picture: Expected bytes, got str"),
    (Item, {"name": b"a", "price": 1}, "$.name: Expected str, got bytes"),
    (int, True, "$: Expected int, got bool"),
    (int, 1.5, "$: Expected int, got float"),
    (str, b"a", "$: Expected str, got bytes"),
    (Annotated[int, msgspec.Meta(ge=1)], 0, "$: Expected int >= 1"),
    (Guest, {"name": "ada", "years": -1, "rooms": [1, "two"]},
     "$.years: Input should be greater than or equal to 0 (and 1 more)"),
    (Mixed, {"guest": {"name": "a", "rooms": ["x"]}, "ticket": {"seat": 1}},
     "$.guest.rooms[0]: Input should be a valid integer, unable to parse string as an integer"),
    (list[Ticket], [{"seat": 1}, {"by": b""}], "$[1]: Object missing required field seat"),
]  # fmt: skip


@sweep(("hint", "data", "told"), MISFITS)
def test_mismatch_error_names_the_location(hint: Any, data: Encodable, told: str) -> None:
    with pytest.raises(MalformedDataError) as caught:
        data_type(hint).read(sent(data))
    assert str(caught.value) == told
    assert f"{caught.value.place}: {caught.value.text}" == told


def test_received_text_is_quoted_in_one_short_line() -> None:
    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        pass

    with pytest.raises(MalformedDataError) as caught:
        data_type(Strict).read({"\x1b[2J\n" + "x" * 10_000: 1})
    assert str(caught.value).isprintable()
    assert len(caught.value.text) < 2 * LONGEST_TEXT


def test_a_million_mismatches_are_counted_and_not_listed() -> None:
    class Seats(pydantic.BaseModel):
        guests: list[Guest]

    with pytest.raises(MalformedDataError) as caught:
        data_type(Seats).read({"guests": [{}] * (MOST_TOLD + 1)})
    assert str(caught.value) == "$: 101 values do not fit"
    told = r"guests\[0\].name: Field required \(and 99 more"
    with pytest.raises(MalformedDataError, match=told):
        data_type(Seats).read({"guests": [{}] * MOST_TOLD})


@pytest.mark.parametrize("hint", [set, set[Any], frozenset[Any], list[set[Any]]])
def test_unhashable_set_items_are_malformed(hint: Any) -> None:
    with pytest.raises(MalformedDataError, match="unhashable"):
        data_type(hint).read([[[1]]])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats() | st.text()
        | st.binary(),
        lambda inside: st.lists(inside, max_size=4)
        | st.dictionaries(st.text(max_size=4), inside, max_size=4)
        | st.dictionaries(st.integers(0, 9), inside, max_size=4),
        max_leaves=12,
    )
)  # fmt: skip
def test_any_data_matches_or_is_malformed(data: Encodable) -> None:
    for hint in (Stock, Guest, Mixed, list[Ticket]):
        try:
            data_type(hint).read(data)
        except MalformedDataError:
            continue


@pytest.mark.parametrize("value", [{"seat": 1}, Item("tea", "3"), Item(b"tea", 3), None])  # type: ignore[arg-type]  # the test
def test_sent_value_of_another_type_raises_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="not of type Item"):
        data_type(Item).write(value)


def test_value_without_encoding_raises_type_error() -> None:
    with pytest.raises(TypeError, match="cannot encode a value of type object"):
        data_type(list[Any]).write([object()])


@pytest.mark.parametrize("hint", [bytes | str, Item | Mixed, object(), "Item"])
def test_a_hint_that_is_no_type_of_data_is_refused(hint: Any) -> None:
    with pytest.raises(ConfigError, match="cannot check data of type"):
        data_type(hint)


class Plain:
    pass


@dataclass
class Holder:
    inside: Plain | None = None


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        *((hint, "Plain") for hint in (Plain, list[Plain], dict[str, Plain | None], Holder)),
        (tuple[int, Annotated[list[Holder], 1]], "Plain"),
        (Callable[[int], int], "Callable"),
        (Iterator[int], "Iterator"),
    ],
)
def test_unsupported_class_is_refused_at_any_depth(hint: Any, name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"cannot check data of type .*: {name} is not a type of data"
    ):
        data_type(hint)


@dataclass
class Branch:
    leaves: "list[Branch]" = field(default_factory=list)
    guest: Guest | None = None
    more: dict[str, object] = field(default_factory=dict)


def test_recursive_class_and_class_of_any_data() -> None:
    branch = Branch([Branch()], Guest(name="ada"), {"a": [1, b"\xff"], "b": None})
    assert data_type(Branch).read(sent(data_type(Branch).write(branch))) == branch


def test_a_type_is_looked_at_once() -> None:
    assert data_type(Item) is data_type(Item)
    unhashable = Annotated[int, []]
    assert data_type(unhashable).read(5) == 5


def test_types_need_no_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert any(one.startswith("msgspec") for one in project["dependencies"])


def test_models_in_cells_become_maps_and_nothing_else_changes() -> None:
    refused = LbmEncodeError("no encoding")
    cells = {keys.DATA: [TEA], keys.HEADERS: {"a": b"\0"}}
    plain = plain_cells(cells, refused)
    assert plain[keys.DATA] == [{"name": "tea", "price": 3, "picture": b"\0\xff"}]
    assert plain[keys.HEADERS] == {"a": b"\0"}
    for data in ({1, 2}, object(), [[object()]]):
        with pytest.raises(LbmEncodeError):
            plain_cells({keys.DATA: data}, refused)
    with pytest.raises(LbmEncodeError):
        plain_cells({keys.DATA: [TEA, object()]}, refused)


def test_types_encoded_as_text_can_be_sent_alone() -> None:
    refused = LbmEncodeError("no encoding")
    for hint, value in (
        (datetime, datetime(2026, 1, 2, tzinfo=UTC)),
        (Decimal, Decimal("12.50")),
        (UUID, UUID(int=5)),
        (Colour, Colour.RED),
        (list[timedelta], [timedelta(seconds=5)]),
    ):
        plain = plain_cells({keys.DATA: value}, refused)[keys.DATA]
        assert data_type(hint).read(sent(plain)) == value
