import pytest

from node.dialects.core import ByteQueue
from node.protocol.account import Account


@pytest.mark.parametrize("sizes", [[5], [300], [100, 100, 100], [300, 1], [1, 300], [99, 1, 99]])
def test_it_gives_whole_strings_up_to_the_limit_or_all(sizes: list[int]) -> None:
    outgoing = ByteQueue(Account(1 << 30))
    put = [bytes([n]) * size for n, size in enumerate(sizes)]
    for data in put:
        outgoing.put(data)
    taken = b""
    while outgoing.count:
        data = outgoing.take(100)
        # With less than was asked for, a driver takes it that nothing is left.
        assert len(data) >= 100 or not outgoing.count
        taken += data
        assert outgoing.size == sum(sizes) - len(taken)
    assert taken == b"".join(put)
