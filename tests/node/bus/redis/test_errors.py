"""Conversion of Redis errors to errors of the bus."""

import pytest
from coredis.exceptions import (
    AuthenticationFailureError,
    AuthenticationRequiredError,
    AuthorizationError,
    BusyLoadingError,
    DataError,
    ReadOnlyError,
    ResponseError,
    StreamConsumerGroupError,
    StreamDuplicateConsumerGroupError,
    UnknownCommandError,
    WrongTypeError,
)
from coredis.exceptions import ConnectionError as LostConnectionError

from parley._node.bus.errors import (
    BusDamagedError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
    NotPendingError,
)
from parley._node.bus.redis.errors import (
    bus_error,
    check_version,
    is_missing_group,
    is_too_old,
)
from parley._node.errors import ConfigError
from tests.sweep import sweep


@sweep(
    ("error", "kind"),
    [
        (ResponseError("OOM command not allowed when used memory > 'maxmemory'."), BusFullError),
        (ResponseError("MISCONF Errors writing to the AOF: No space left on device"), BusFullError),
        (ResponseError("MISCONF Redis is configured to save"), BusUnavailableError),
        (ResponseError("MASTERDOWN RedisConnection with MASTER is down"), BusUnavailableError),
        (ResponseError("NOREPLICAS Not enough good replicas"), BusUnavailableError),
        (ResponseError("BUSY Redis is busy running a script"), BusUnavailableError),
        (ResponseError("ERR Error running script: @user_script:1: OOM command"), BusFullError),
        (BusyLoadingError("Redis is loading the dataset in memory"), BusUnavailableError),
        (ReadOnlyError("You can't write against a read only replica."), BusUnavailableError),
        (WrongTypeError("Operation against a key"), BusDamagedError),
        (ResponseError("ERR running script: WRONGTYPE Operation"), BusDamagedError),
        (AuthenticationRequiredError("Authentication required."), BusRefusedError),
        (AuthenticationFailureError("invalid username-password pair"), BusRefusedError),
        (AuthorizationError("this user has no permissions"), BusRefusedError),
        (ResponseError("The user executing the script can't run this command"), BusRefusedError),
        (LostConnectionError("Connection lost!"), BusUnavailableError),
        (LostConnectionError("max number of clients reached"), BusUnavailableError),
        (TimeoutError(), BusUnavailableError),
        (OSError("no route"), BusUnavailableError),
        (DataError("what?"), BusDamagedError),
        (ResponseError("ERR something new"), BusDamagedError),
    ],
)
def test_each_error_has_its_kind(error: Exception, kind: type[Exception]) -> None:
    found = bus_error(error)
    assert type(found) is kind
    assert str(found).startswith("Redis: ")


@pytest.mark.parametrize("error", [TimeoutError(), LostConnectionError(), ResponseError()])
def test_no_error_is_the_name_of_a_class(error: Exception) -> None:
    assert str(bus_error(error)) == "Redis: no answer"


def test_bus_errors_stay_unchanged() -> None:
    ours = NotPendingError("no")
    assert bus_error(ours) is ours
    assert (
        str(bus_error(ResponseError(f"OOM x script: {'ab' * 20}, on @user_script:1.")))
        == "Redis: OOM x"
    )


def test_a_group_that_is_missing() -> None:
    assert is_missing_group(StreamConsumerGroupError("No such key"))
    assert is_missing_group(ResponseError("ERR Error running script: -NOGROUP No such key"))
    assert not is_missing_group(StreamDuplicateConsumerGroupError("exists"))
    assert not is_missing_group(ResponseError("ERR no"))
    assert not is_missing_group(OSError("no such key"))


@pytest.mark.parametrize("version", ["6.2.0", "6.2", "7.0.15", "10.0"])
def test_supported_versions(version: str) -> None:
    check_version(version)
    assert not is_too_old(LostConnectionError("lost"))


@pytest.mark.parametrize("version", ["6.0.16", "5.0", "", None])
def test_versions_that_are_too_old(version: str | None) -> None:
    with pytest.raises(ConfigError, match="or newer"):
        check_version(version)
    lost = LostConnectionError("x")
    lost.__cause__ = UnknownCommandError("unknown command `HELLO`")
    assert is_too_old(lost)
