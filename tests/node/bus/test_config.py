"""The settings of a bus."""

from typing import Any

import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.redis.format import LIGHTBUS, RedisFormat
from parley._node.errors import ConfigError

LEAST = {
    "max_length": 1,
    "max_bytes": 1_024,
    "max_event_bytes": 64,
    "max_store_bytes": 2**20,
    "idempotency_window": 0,
    "idempotency_keys": 1,
    "consumer_ttl": 1,
    "busy_timeout": 0,
    "waiting": 1,
}


@pytest.mark.parametrize("name", [*LEAST, "max_age", "timeout"])
def test_every_number_has_its_range(name: str) -> None:
    least = LEAST.get(name, 1)  # The other two must be above 0.
    for value in (least - 1, float("nan"), float("inf")):
        settings: dict[str, Any] = {name: value}
        with pytest.raises(ConfigError, match=name):
            BusConfig(**settings)


def test_all_numbers_have_a_range() -> None:
    config = BusConfig()
    numbers = {
        name
        for name in BusConfig.__slots__
        if isinstance(getattr(config, name), int | float) and name != "keep_unread"
    }
    assert numbers <= {*LEAST, "timeout"}


@pytest.mark.parametrize("name", ["service", "consumer"])
def test_invalid_names_in_the_settings(name: str) -> None:
    settings: dict[str, Any] = {name: "two words"}
    with pytest.raises(ConfigError, match=name):
        BusConfig(**settings)


def test_groups_are_named_after_the_service() -> None:
    assert BusConfig(service="shop").group_name("mailer") == "shop-mailer"
    assert BusConfig().group_name("mailer") == "mailer"


def test_the_format_of_an_api() -> None:
    own = RedisFormat(suffix="!")
    config = BusConfig(formats={"auth": own, "*": LIGHTBUS})
    assert (config.format_of("auth"), config.format_of("shop")) == (own, LIGHTBUS)
    assert BusConfig().format_of("auth") == RedisFormat()
