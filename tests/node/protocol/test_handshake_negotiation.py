"""Tests of choosing a suite: the responder's order, Retry, `require`, and no common algorithm."""

import pytest

from parley._crypto.registry import NAMES, PARAMETERS
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import NoCommonAlgorithmError
from parley._node.protocol.handshake import choose
from tests.node.protocol.pair import BOB, make_config

ALL = {parameter: NAMES[parameter] for parameter in PARAMETERS}
HYBRID, CLASSIC = "x25519-mlkem768", "x25519"


def responder(**lists: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {**ALL, **lists}


@pytest.mark.parametrize("parameter", PARAMETERS[1:])
def test_the_responders_order_decides(parameter: str) -> None:
    ours = tuple(reversed(NAMES[parameter]))
    config = make_config(BOB, algorithms=responder(**{parameter: ours}))
    choice = choose(config, ALL, {HYBRID: b"", CLASSIC: b""})
    assert choice.suite.names()[parameter] == ours[0]
    assert not choice.retry


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_names_that_only_one_side_has_are_passed_over(parameter: str) -> None:
    config = make_config(BOB, algorithms=ALL)
    last = NAMES[parameter][-1]
    choice = choose(config, {**ALL, parameter: ["brand-new", last]}, {HYBRID: b"", CLASSIC: b""})
    assert choice.suite.names()[parameter] == last


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_nothing_in_common_names_the_parameter(parameter: str) -> None:
    config = make_config(BOB, algorithms=ALL)
    for offered in ([], ["brand-new"]):
        with pytest.raises(NoCommonAlgorithmError) as caught:
            choose(config, {**ALL, parameter: offered}, {HYBRID: b""})
        assert caught.value.parameter == parameter
        assert caught.value.code == CloseCode.NO_COMMON_ALGORITHM


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_what_is_below_the_floor_is_not_taken(parameter: str) -> None:
    best, *rest = NAMES[parameter]
    config = make_config(BOB, algorithms=ALL, require={parameter: frozenset({best})})
    with pytest.raises(NoCommonAlgorithmError):
        choose(config, {**ALL, parameter: rest}, {HYBRID: b"", CLASSIC: b""})


@pytest.mark.parametrize(
    ("order", "offered", "shared", "chosen", "retry"),
    [
        ((HYBRID, CLASSIC), (CLASSIC, HYBRID), (HYBRID, CLASSIC), HYBRID, False),
        ((HYBRID, CLASSIC), (HYBRID, CLASSIC), (CLASSIC,), CLASSIC, False),
        ((CLASSIC, HYBRID), (HYBRID, CLASSIC), (), CLASSIC, True),
        ((CLASSIC,), (HYBRID, CLASSIC), (HYBRID,), CLASSIC, True),
        # A share for an algorithm that wasn't offered is ignored.
        ((HYBRID, CLASSIC), (CLASSIC,), (HYBRID,), CLASSIC, True),
    ],
)
def test_the_kex_with_a_share_comes_first(
    order: tuple[str, ...],
    offered: tuple[str, ...],
    shared: tuple[str, ...],
    chosen: str,
    retry: bool,
) -> None:
    config = make_config(BOB, algorithms=responder(kex=order))
    choice = choose(config, {**ALL, "kex": offered}, dict.fromkeys(shared, b""))
    assert (choice.suite.kex, choice.retry) == (chosen, retry)
