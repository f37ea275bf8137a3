"""Settings of a server in a federation."""

from pathlib import Path
from typing import Any

import pytest

from parley._crypto.identity import NodeId
from parley._node.errors import AddressError, ConfigError
from parley._node.federation.limits import MOST_LINKS
from parley._node.protocol.event_types import LONGEST_EXPORT, MOST_EXPORTS, MOST_SERVERS
from parley._node.settings import FederationSettings, Settings, load_settings
from parley._node.settings.tables import MOST_ACCOUNTS, MOST_PLACES


def node_id(number: int) -> NodeId:
    return NodeId(number.to_bytes(32))


ONE, OTHER = node_id(1), node_id(2)


def test_a_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "parley.toml"
    file.write_text(
        f"""
        [federation]
        links = ["tcp://b.example:4747#{ONE}", "unix:///run/b#{ONE}"]
        members = ["{OTHER}"]
        carry = ["{OTHER}"]
        exports = ["shop.*"]
        follow = ["news"]
        accounts = "known"
        """
    )
    found = load_settings(file, {}).federation
    assert found.places == {ONE: (f"tcp://b.example:4747#{ONE}", f"unix:///run/b#{ONE}")}
    assert found.all_members == {ONE, OTHER}
    assert found.carried == {OTHER}
    assert (found.exports, found.follow, found.accounts) == (("shop.*",), ("news",), "known")
    assert Settings().federation == FederationSettings()


@pytest.mark.parametrize(
    ("text", "found"),
    [("off", "off"), ("known", "known"), ("any", "any"), (f"{ONE}, {OTHER}", None)],
)
def test_who_may_have_an_account(tmp_path: Path, text: str, found: str | None) -> None:
    expected = found or (str(ONE), str(OTHER))
    variables = {"PARLEY_FEDERATION_ACCOUNTS": text}
    assert load_settings(environ=variables).federation.accounts == expected
    file = tmp_path / "parley.toml"
    given = f'"{found}"' if found else f'["{ONE}", "{OTHER}"]'
    file.write_text(f"[federation]\naccounts = {given}\n")
    assert load_settings(file, {}).federation.accounts == expected


@pytest.mark.parametrize("value", ["sometimes", "3", f'["{ONE}", "x"]', "[3]"])
def test_what_is_no_rule_for_accounts(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="PARLEY_FEDERATION_ACCOUNTS"):
        load_settings(environ={"PARLEY_FEDERATION_ACCOUNTS": value})
    file = tmp_path / "parley.toml"
    file.write_text(f"[federation]\naccounts = {value if value[0] == '[' else repr(value)}\n")
    with pytest.raises(ConfigError, match=r"cannot set federation\.accounts to .*parley\.toml"):
        load_settings(file, {})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"links": ("tcp://b.example:4747",)}, "has no node ID"),
        ({"links": (f"via://b.example:4747/{OTHER}#{ONE}",)}, "a path through a server"),
        ({"members": ("b",)}, "members has 'b', which is not a node ID"),
        ({"carry": ("b",)}, "carry has 'b'"),
        ({"exports": ("",)}, "invalid export"),
        ({"follow": ("x" * (LONGEST_EXPORT + 1),)}, "invalid export"),
        ({"accounts": ("b",)}, "accounts has 'b'"),
        ({"accounts": "b"}, "accounts is 'b'"),
    ],
)
def test_what_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FederationSettings(**wrong)


def test_a_link_is_an_address() -> None:
    with pytest.raises(AddressError):
        FederationSettings(links=("b.example",))


@pytest.mark.parametrize(
    ("name", "made", "most"),
    [
        ("links", lambda count: [f"tcp://h:1#{node_id(n)}" for n in range(count)], MOST_LINKS),
        ("links", lambda count: [f"tcp://h:{n}#{ONE}" for n in range(count)], MOST_PLACES),
        ("members", lambda count: [str(node_id(n)) for n in range(count)], MOST_SERVERS - 1),
        ("carry", lambda count: [str(node_id(n)) for n in range(count)], MOST_SERVERS),
        ("exports", lambda count: [f"a{n}" for n in range(count)], MOST_EXPORTS),
        ("follow", lambda count: [f"a{n}" for n in range(count)], MOST_EXPORTS),
        ("accounts", lambda count: [str(node_id(n)) for n in range(count)], MOST_ACCOUNTS),
    ],
)
def test_how_many_there_may_be(name: str, made: Any, most: int) -> None:
    FederationSettings(**{name: tuple(made(most))})
    with pytest.raises(ConfigError, match=f"at most {most:,}"):
        FederationSettings(**{name: tuple(made(most + 1))})


def test_members_and_links_count_together() -> None:
    members = tuple(str(node_id(n)) for n in range(MOST_SERVERS - 1))
    FederationSettings(members=members, links=(f"tcp://h:1#{node_id(3)}",))
    with pytest.raises(ConfigError, match="members: at most"):
        FederationSettings(members=members, links=(f"tcp://h:1#{node_id(5_000)}",))
