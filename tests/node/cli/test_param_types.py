"""Amounts with units, as they are typed."""

import pytest

from parley._node.cli.param_types import parse_duration, parse_size
from parley._node.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [("10GB", 10**10), ("1.5 MiB", 1_572_864), ("0B", 0), ("500kB", 500_000), ("2TiB", 2 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 2_592_000), ("1.5h", 5_400), ("90m", 5_400), ("1w", 604_800), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "d", "-1d", "10GBs", "1e3s", "ten days", "30D", "∞d"])
def test_other_amounts(text: str) -> None:
    for parse in (parse_size, parse_duration):
        with pytest.raises(ConfigError, match="the units are"):
            parse(text)
