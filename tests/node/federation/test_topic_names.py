"""Names of topics across servers."""

import pytest

from parley._crypto.identity import NodeId
from parley._node.federation.topic_names import read_topic_name

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
