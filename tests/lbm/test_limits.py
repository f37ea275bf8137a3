"""Tests of LbmLimits: the numbers of section 3, and invalid limits."""

import pytest

from parley._lbm.errors import LbmError
from parley._lbm.limits import LbmLimits


@pytest.mark.parametrize(
    "bounds",
    [{"max_bytes": 0}, {"max_items": 0}, {"max_depth": 0}, {"max_depth": 129}, {"max_items": -1}],
    ids=str,
)
def test_bounds_out_of_range(bounds: dict[str, int]) -> None:
    with pytest.raises(LbmError):
        LbmLimits(**bounds)
