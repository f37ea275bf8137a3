"""Choosing one name for each parameter from what both sides know (section 5).

The responder's order decides. Pure functions over names; knows no keys.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from parley._crypto.registry import PARAMETERS, Suite
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import RemoteProtocolError

Offer = Mapping[str, Sequence[str]]


class NoCommonAlgorithmError(RemoteProtocolError):
    """Nothing in common for one parameter, which Reject names."""

    def __init__(self, parameter: str) -> None:
        super().__init__(CloseCode.NO_COMMON_ALGORITHM, f"no common {parameter} algorithm")
        self.parameter = parameter


class Choice(NamedTuple):
    """The responder's choice; `retry` means that no share for the kex came yet."""

    suite: Suite
    retry: bool


def choose(config: CoreConfig, offer: Offer, shared: Mapping[str, bytes]) -> Choice:
    """The responder's choice among `offer`; `shared` holds the kex shares that came.

    Raises:
        NoCommonAlgorithmError: names the first parameter without a common name.
    """
    picked: dict[str, str] = {}
    retry = False
    for parameter in PARAMETERS:
        common = [name for name in config.names(parameter) if name in offer[parameter]]
        if not common:
            raise NoCommonAlgorithmError(parameter)
        picked[parameter] = common[0]
        if parameter == "kex":
            ready = [name for name in common if name in shared]
            retry = not ready
            picked[parameter] = (ready or common)[0]
    return Choice(Suite.of(picked), retry)
