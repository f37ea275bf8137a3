"""Tests of node/trust/rations.py: each address for itself, and few of them are remembered."""

import pytest

from parley._node.errors import CallRefused
from parley._node.protocol.rate_limit import Rate
from parley._node.trust.rations import REMEMBERED, Rations


def test_each_address_has_its_own() -> None:
    rations = Rations(Rate(2, 10.0))
    assert [rations.take("192.0.2.1", 0.0) for _ in range(3)] == [True, True, False]
    assert rations.take("192.0.2.2", 0.0)
    # An IPv6 /64 is one.
    network = [rations.take(f"2001:db8::{host}", 0.0) for host in (1, 2, 3)]
    assert network == [True, True, False]
    assert rations.take("192.0.2.1", 10.0)
    with pytest.raises(CallRefused) as refused:
        rations.require("192.0.2.1", 10.0)
    assert refused.value.code == 19


def test_who_was_quiet_for_longest_is_forgotten_first() -> None:
    rations = Rations(Rate(1, 10.0))
    for number in range(REMEMBERED):
        rations.require(f"host-{number}", 0.0)
    assert not rations.take("host-0", 0.0)  # and is the last to have asked
    rations.require("one more", 0.0)
    assert len(rations) == REMEMBERED
    assert not rations.take("host-0", 0.0)
    rations.require("host-1", 0.0)
