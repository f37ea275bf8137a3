"""The content of payloads: a series is parsed once, with the same result as each payload alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys as cells
from parley._lbm.codec import encode
from parley._node.journal.audit import content
from parley._node.journal.audit.content import Content, read_content
from parley._node.journal.audit.rows import MALFORMED, OK
from parley._node.protocol import codes

CALL = codes.SIM << 8 | codes.CALL
RESULT = codes.SIM << 8 | codes.RESULT
OPEN = codes.STREAM << 8 | codes.OPEN


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "openings", {})
    monkeypatch.setattr(content, "opening_sizes", {})


def afresh(stream: int, number: int, payload: bytes) -> Content:
    content.openings.clear()
    content.opening_sizes.clear()
    return read_content(stream, number, payload)


payloads = st.one_of(
    st.builds(
        encode,
        st.fixed_dictionaries(
            {},
            optional={
                cells.TOPIC: st.sampled_from(["a", "prices", "news"]),
                cells.CODE: st.integers(0, 3),
                cells.DATA: st.binary(max_size=6) | st.text(max_size=3),
                1_000: st.binary(max_size=3) | st.text(max_size=3),
            },
        ),
    ),
    st.binary(max_size=12),
)


@given(
    st.lists(st.tuples(st.just(3), st.sampled_from([CALL, RESULT, OPEN]), payloads), max_size=30)
)
def test_silent_records_add_no_rows(series: list[tuple[int, int, bytes]]) -> None:
    wanted = [afresh(*one) for one in series]
    content.openings.clear()
    content.opening_sizes.clear()
    assert [read_content(*one) for one in series] == wanted
    assert [read_content(*one) for one in series] == wanted


def test_series_of_payloads_shares_one_content() -> None:
    series = [encode({cells.TOPIC: "prices", cells.DATA: bytes([n]) * 30}) for n in range(3)]
    one, *others = (read_content(1, CALL, payload) for payload in series)
    assert all(other is one for other in others)
    assert one.topic == "prices"
    # The same size, but another topic; and one byte too long.
    assert read_content(1, CALL, series[0].replace(b"prices", b"prizes")).topic == "prizes"
    assert read_content(1, CALL, series[0] + b"x").status == MALFORMED
    assert read_content(1, CALL, series[0][:-1]).status == MALFORMED
    assert read_content(1, CALL, series[0]).status == OK


@pytest.mark.pure  # It replaces a constant of the core.
def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_MOST_OPENINGS", 8)
    for number in range(50):
        read_content(1, CALL, encode({cells.TOPIC: f"t{number}", cells.DATA: b"x"}))
        assert len(content.openings) <= 8
        assert len(content.opening_sizes) <= 8
    content.openings.clear()
    read_content(1, CALL, encode({cells.TOPIC: "t" * 1_000, cells.DATA: b"x"}))
    assert not content.openings  # Each cached payload would keep an opening of this length.
