"""Hypothesis strategies for the tests of lbm: values, payloads, damaged payloads."""

from typing import Any

from hypothesis import strategies as st

from parley._lbm.codec import Value, encode

uints = st.integers(0, 2**64 - 1) | st.integers(0, 300)
texts = st.text(max_size=30)
scalars: st.SearchStrategy[Value] = (
    uints
    | st.integers(-(2**64), -1)
    | st.integers(-300, -1)
    | st.binary(max_size=40)
    | texts
    | st.floats()
    | st.booleans()
    | st.none()
)


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(children, max_size=12)
        | st.dictionaries(uints, children, max_size=5)
        | st.dictionaries(texts, children, max_size=5)
    )


# The decoder reads runs of byte strings of one size by columns.
runs = st.integers(0, 30).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=6, max_size=30)
)
values: st.SearchStrategy[Value] = st.recursive(scalars | runs, containers, max_leaves=20)
payloads: st.SearchStrategy[dict[int, Value]] = st.dictionaries(
    st.integers(1, 40) | st.integers(1, 2**64 - 1), values, max_size=8
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return an encoded payload with one to three changes."""
    data = bytearray(encode(draw(payloads)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["set", "insert", "delete", "repeat"])):
            case "set":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=4))
            case "delete":
                del data[at : at + draw(st.integers(1, 4))]
            case _:
                data[at:at] = data[at : at + draw(st.integers(1, 20))]
    return bytes(data)
