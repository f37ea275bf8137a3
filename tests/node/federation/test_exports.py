"""Tests of node/federation/exports.py: valid names, and limits."""

import pytest

from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError
from parley._node.federation.exports import Exports, read_topic_name
from parley._node.protocol.event_types import LONGEST_EXPORT, MOST_EXPORTS


def test_as_many_and_as_long_as_may_be() -> None:
    patterns = [f"{number}".zfill(LONGEST_EXPORT) for number in range(MOST_EXPORTS)]
    assert Exports([*patterns, patterns[0]]).names(patterns[-1])
    with pytest.raises(
        ConfigError, match=f"cannot export {MOST_EXPORTS + 1} names: at most {MOST_EXPORTS}"
    ):
        Exports([*patterns, "one more"])


@pytest.mark.parametrize("pattern", ["", "x" * (LONGEST_EXPORT + 1)])
def test_a_pattern_of_another_length(pattern: str) -> None:
    with pytest.raises(ConfigError, match=f"expected 1 to {LONGEST_EXPORT} characters"):
        Exports([pattern])


ONE, TWO = NodeId(bytes(range(32))), NodeId(bytes(range(32, 64)))


def test_a_server_or_a_node_at_a_home() -> None:
    assert read_topic_name(f"news@{ONE}") == ("news", (ONE,))
    assert read_topic_name(f"news@{ONE}/{TWO}") == ("news", (ONE, TWO))
    assert read_topic_name(f"a@b@{ONE}") == ("a@b", (ONE,))
    assert read_topic_name(f"@{ONE}") == ("", (ONE,))


@pytest.mark.parametrize(
    "name",
    [
        "news",
        "",
        "@",
        "news@",
        f"news{ONE}",
        f"news@{ONE}/",
        f"news@/{ONE}",
        f"news@{ONE} ",
        f"news@{ONE}/{TWO}/{ONE}",
        f"news@{str(ONE).upper()}",
        f"news@{str(ONE)[:-1]}",
    ],
)
def test_what_is_none(name: str) -> None:
    assert read_topic_name(name) is None
