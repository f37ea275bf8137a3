"""The settings of a connection: identity, preferences, limits, policies.

They are frozen and validated. Sizes are bytes, times seconds unless the name says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from parley._crypto.identity import Identity
from parley._crypto.registry import NAMES, PARAMETERS, require_name
from parley._lbm import keys
from parley._lbm.codec import Value, encode, encode_value
from parley._lbm.padding import Padding, parse_padding
from parley._node.protocol import limits as fixed
from parley._node.protocol.codes import ROLES
from parley._node.protocol.config_types import Count, Seconds, check_types
from parley._node.protocol.limits import Limits

Plaintext = Literal["never", "only", "both"]
Deliver = Literal["opened", "sealed"]


def _default_names() -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({parameter: NAMES[parameter] for parameter in PARAMETERS})


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Settings of the protocol core of one connection.

    `algorithms` maps each of the five parameters to names in order of preference. `require`
    restricts some parameters to the given names: other algorithms are neither offered nor accepted.
    It can't be combined with plaintext.

    With `plaintext="only"`, only unencrypted connections are made and accepted; with "both", a
    listener accepts either kind. `rekey_allowance` is the number of RekeyOffers that one side may
    send in a burst, and then in every 10 seconds.

    `resume` is how long a session that lost its transport is stored, 0..600 seconds (0: sessions
    can't be resumed). `resume_buffer` is how many bytes of it are stored. `statements` are the
    successions that lead to this identity, the oldest first, at most 4 and 8,192 bytes (section
    22). `proof_payloads` are the payloads of the Proof, derived from the other settings: the first
    has all statements, each next one lacks the oldest of them, and the last has none.

    Raises:
        ValueError: a setting is out of range.
        UnknownAlgorithmError: an algorithm is not in the registry (a ValueError).
    """

    identity: Identity
    role: str = "peer"
    algorithms: Mapping[str, tuple[str, ...]] = field(default_factory=_default_names)
    require: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    network_key: bytes | None = field(default=None, repr=False)
    plaintext: Plaintext = "never"
    deliver: Deliver = "opened"
    padding: Padding = field(default_factory=lambda: parse_padding("off"))
    node_info: Mapping[str, Value] = field(default_factory=dict)
    handshake_timeout: Seconds = fixed.HANDSHAKE_TIMEOUT
    idle_before_ping: Seconds = fixed.IDLE_BEFORE_PING
    ping_timeout: Seconds = fixed.PING_TIMEOUT
    update_after_events: Count = fixed.UPDATE_AFTER_EVENTS
    update_after_bytes: Count = fixed.UPDATE_AFTER_BYTES
    update_after_seconds: Seconds = fixed.UPDATE_AFTER_SECONDS
    rekey_interval: Seconds = fixed.REKEY_INTERVAL
    rekey_allowance: Count = 1
    peer_memory: Count = fixed.PEER_MEMORY
    close_drain: Seconds = fixed.CLOSE_DRAIN
    resume: Annotated[float, Meta(ge=0, le=fixed.RESUME_MS / 1000)] = 0.0
    resume_buffer: Annotated[int, Meta(ge=fixed.LEAST_RESUME_BUFFER)] = fixed.RESUME_BUFFER
    statements: tuple[bytes, ...] = ()
    # Computed once, because they are the same in each handshake.
    _names: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    proof_payloads: tuple[bytes, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_types(self)
        if self.role not in ROLES:
            raise ValueError(f"role is {self.role!r}; it must be one of {', '.join(ROLES)}")
        for named in (self.algorithms, self.require):
            for parameter, names in named.items():
                if parameter not in PARAMETERS:
                    raise ValueError(
                        f"unknown parameter {parameter!r}: expected one of {', '.join(PARAMETERS)}"
                    )
                for name in names:
                    require_name(parameter, name)
        key = self.network_key
        if key is not None and (len(key) != 32 or not any(key)):
            raise ValueError(
                f"invalid network key of {len(key)} bytes: expected 32 bytes, not all zero"
            )
        if self.network_key is not None and self.plaintext != "never":
            raise ValueError(
                f"plaintext is {self.plaintext!r}; with a network key it must be 'never'"
            )
        if self.plaintext != "never" and self.require:
            reason = f"plaintext is {self.plaintext!r}; with require it must be 'never'"
            raise ValueError(reason)
        if len(encode_value(self.node_info)) > fixed.NODE_INFO_SIZE:
            raise ValueError(f"node information is at most {fixed.NODE_INFO_SIZE} bytes encoded")
        allowed = {parameter: self._allowed(parameter) for parameter in PARAMETERS}
        object.__setattr__(self, "_names", MappingProxyType(allowed))
        proof: dict[int, Value] = {
            keys.IDENTITY_KEYS: list(self.identity.cells()),
            keys.NODE_INFO: dict(self.node_info),
        }
        count = len(self.statements)
        proofs = [
            encode({**proof, keys.STATEMENTS: list(self.statements[start:])})
            for start in range(count)
        ]
        object.__setattr__(self, "proof_payloads", (*proofs, encode(proof)))
        for parameter in PARAMETERS:
            if self.plaintext != "only" and not self.names(parameter):
                raise ValueError(
                    f"no allowed {parameter} algorithm: add one to algorithms or require"
                )

    def proof_payload(self, size: int) -> bytes:
        """Return the payload of the Proof with the most statements that has at most `size`
        bytes.
        """
        fitting = (payload for payload in self.proof_payloads if len(payload) <= size)
        return next(fitting, self.proof_payloads[-1])

    @property
    def resume_ms(self) -> int:
        """`resume` in milliseconds, as sent in Hello and Reply; 0 if all connections are
        unencrypted.
        """
        return 0 if self.plaintext == "only" else round(self.resume * 1000)

    def names(self, parameter: str) -> tuple[str, ...]:
        """Return the algorithms that this node offers or accepts for `parameter`, in order of
        preference.
        """
        return self._names[parameter]

    def _allowed(self, parameter: str) -> tuple[str, ...]:
        wanted = self.algorithms.get(parameter, NAMES[parameter])
        floor = self.require.get(parameter)
        held = self.identity.algorithms if parameter == "signing" else wanted
        return tuple(n for n in wanted if n in held and (floor is None or n in floor))
