"""Rights on a bus in the settings, and the path of its file."""

from pathlib import Path

import pytest

from parley._crypto.identity import Identity
from parley._node.errors import ConfigError
from parley._node.settings import BusSettings, Settings, load_settings
from parley._node.settings.tables import parse_right
from tests.sweep import sweep

ONE, OTHER = (Identity.create().node_id for _ in range(2))


@sweep(
    ("entry", "action", "name", "group", "allowed"),
    [
        ("*=publish:shop.*", "publish", "shop.order", "", True),
        ("*=publish:shop.*", "consume", "shop.order", "g", False),
        ("*=publish:shop.*", "publish", "shops.order", "", False),
        ("*=publish:shop.order", "publish", "shop.order", "", True),
        ("*=publish:shop.order", "publish", "shop.order.dead", "", False),
        ("*=consume:*:mail*", "consume", "shop.order", "mailer", True),
        ("*=consume:*:mail*", "consume", "shop.order", "audit", False),
        ("*=consume:*:mailer", "consume", "shop.order", "mailer2", False),
        # Rights for one group don't apply to all groups, and those for some events not to all
        # events.
        ("*=inspect:*:mail*", "inspect", "shop.order", "", False),
        ("*=inspect:shop.*", "inspect", "", "", False),
        ("*=inspect:*", "inspect", "", "", True),
        ("*=publish+consume:*:g", "publish", "shop.order", "", True),
        ("*=manage:*a*b*a", "manage", "xaxbxa", "", True),
        ("*=manage:*a*b*a", "manage", "xaxb", "", False),
        ("*=manage:a*a", "manage", "a", "", False),
        ("ONE=manage:*", "manage", "shop.order", "", True),
        ("OTHER=manage:*", "manage", "shop.order", "", False),
    ],
)
def test_what_an_entry_allows(
    entry: str, action: str, name: str, group: str, allowed: bool
) -> None:
    entry = entry.replace("ONE", str(ONE)).replace("OTHER", str(OTHER))
    assert parse_right(entry).allows(ONE, action, name, group) is allowed


def test_who_proved_nothing_is_only_anybody() -> None:
    assert parse_right("*=publish:*").allows(None, "publish", "a.b", "")
    assert not parse_right(f"{ONE}=publish:*").allows(None, "publish", "a.b", "")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("", "expected NODEID="),
        ("*", "expected NODEID="),
        ("*=publish", "expected NODEID="),
        ("*=publish:", "expected NODEID="),
        ("*=publish:a b", "expected NODEID="),
        ("*=publish:a.b:g h", "expected NODEID="),
        ("*=publish:[a]", "expected NODEID="),
        ("*=:a.b", "expected NODEID="),
        ("*=publish+:a.b", "are not of publish, consume"),
        ("*=all:a.b", "are not of publish, consume"),
        ("bob=publish:a.b", "is neither a node ID"),
    ],
)
def test_what_is_no_entry(entry: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BusSettings(allow=(entry,))


def test_a_file_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "parley.toml"
    file.write_text(
        f'[bus]\nurl = "sqlite:///a%20b.db?service=shop"\nallow = ["{ONE}=publish:shop.*:g"]\n'
    )
    found = load_settings(file, {}).bus
    assert found.url == f"sqlite:///{tmp_path}/a%20b.db?service=shop"
    assert [right.node_id for right in found.rights] == [ONE]
    monkeypatch.chdir("/")
    environ = {"PARLEY_BUS_URL": "sqlite:///x.db", "PARLEY_BUS_ALLOW": "*=publish+consume:*,*=x:*"}
    with pytest.raises(ConfigError, match="PARLEY_BUS_ALLOW"):
        load_settings(file, environ)
    environ["PARLEY_BUS_ALLOW"] = "*=publish+consume:*, *=inspect:a.*"
    found = load_settings(file, environ).bus
    assert found.url == "sqlite:////x.db"
    assert [right.events for right in found.rights] == ["*", "a.*"]
    assert Settings().bus == BusSettings()
    absolute = {"PARLEY_BUS_URL": "sqlite:////var/x.db"}
    assert load_settings(environ=absolute).bus.url == "sqlite:////var/x.db"
    redis = {"PARLEY_BUS_URL": "redis://127.0.0.1:1/0"}
    assert load_settings(environ=redis).bus.url == "redis://127.0.0.1:1/0"
