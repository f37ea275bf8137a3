"""Names and messages of a chat room: valid and invalid values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.identity import Identity
from parley._node.apps.chat.messages import (
    NAME_LENGTH,
    TEXT_LENGTH,
    Message,
    Person,
    clean_name,
    require_text,
)
from tests.sweep import sweep

ID = Identity.create().node_id
ANN = Person(ID, "ann")


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("ann", "ann"),
        ("  Ann  B. ", "Ann B."),
        ("O'Neil-2_x", "O'Neil-2_x"),
        ("日本", "日本"),
        ("Zoe\u0308", "Zoë"),
        ("ａｎｎ", "ann"),  # full width: not another ann
        ("a\tb\nc", "a b c"),
        ("x" * NAME_LENGTH, "x" * NAME_LENGTH),
        ("हिन्दी", "हिन्दी"),
    ],
)
def test_names(name: str, clean: str) -> None:
    assert clean_name(name) == clean
    assert clean_name(clean) == clean


@sweep(
    "name",
    [
        *("", " ", "x" * (NAME_LENGTH + 1), "x" * 10_000, None, 5, b"ann", ["ann"]),
        *("* ann", "-ann", "ann: hi", "ann>", "a/b", "\x1b[2Jann", "a\x00b"),
        *("ann\u202eeve", "ann\u200b", "\u0308a", "ann\u2028"),
    ],
)
def test_invalid_names(name: object) -> None:
    if name == "ann\u2028":  # a blank at the end, for Unicode
        assert clean_name(name) == "ann"
        return
    with pytest.raises(ValueError, match="a name"):
        clean_name(name)


@pytest.mark.parametrize("text", ["", "x" * (TEXT_LENGTH + 1), None, b"x", 1])
def test_invalid_texts(text: object) -> None:
    with pytest.raises(ValueError, match="a message is text"):
        require_text(text)


@pytest.mark.parametrize(
    "message",
    [Message("text", ANN, "\x1b[2J ✓"), Message("join", ANN), Message("leave", ANN)],
)
def test_a_message_comes_back(message: Message) -> None:
    assert Message.parse(message.encode()) == message


PERSON = ANN.encode()


@sweep(
    "value",
    [
        *(None, 1, "text", [], {}),
        {"kind": "text", "from": PERSON},
        {"kind": "text", "from": PERSON, "text": 5},
        {"kind": "shout", "from": PERSON, "text": "x"},
        {"kind": ["text"], "from": PERSON, "text": "x"},
        {"kind": "join", "from": {"id": str(ID), "name": "ann: hi"}},
        {"kind": "join", "from": {"id": "ann", "name": "ann"}},
        {"kind": "join", "from": {"name": "ann"}},
        {"kind": "join", "from": str(ID)},
    ],
)
def test_invalid_messages(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        Message.parse(value)


_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "from", "text", "id", "name"]), inner)
    ),
    max_leaves=8,
)


@given(_VALUES)
def test_any_value_is_a_message_or_a_value_error(value: object) -> None:
    try:
        message = Message.parse(value)
    except ValueError:
        return
    assert Message.parse(message.encode()) == message
