"""Identities: one to eight signing keys, the first of which names the node (section 4).

A `PublicIdentity` exists only if it is sound: every binding verified and every key
of a known algorithm checked.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from functools import cached_property
from uuid import UUID

from parley._crypto.errors import IdentityError, SignatureError
from parley._crypto.registry import SIGNING, require_name
from parley._crypto.signing import SigningKey, Verifier

NODE_ID_SIZE = 32
MAX_KEYS = 8

_TEXT_SIZE = 52
_SHORT_SIZE = 8
_SHOWN = 40  # characters of a peer's name of an algorithm in an error
_MAX_NAME_SIZE = 255  # the length of an algorithm's name is one byte

# [algorithm, public key, the primary's signature over both, or None for the primary itself]
Entry = tuple[str, bytes, bytes | None]


class NodeId(bytes):
    """The 32 bytes that name a node; shown as 52 characters of base32 in lower case.

    Example:

        from parley import NodeId

        assert NodeId.parse(str(node.node_id)) == node.node_id
    """

    __slots__ = ()

    def __new__(cls, value: bytes) -> "NodeId":
        """Take 32 bytes; IdentityError on any other size."""
        if len(value) != NODE_ID_SIZE:
            raise IdentityError(f"a node id has {NODE_ID_SIZE} bytes")
        return super().__new__(cls, value)

    @classmethod
    def of_key(cls, algorithm: str, public: bytes) -> "NodeId":
        """Return the id of the node whose primary key this is."""
        return cls(hashlib.sha256(b"parley1 node id" + _named(algorithm) + public).digest())

    @classmethod
    def parse(cls, text: str) -> "NodeId":
        """Read the 52 characters that `text` gives, and no other spelling; else IdentityError."""
        try:
            # 52 characters hold 260 bits: b32decode wants them filled up to 56 with padding.
            node_id = cls(base64.b32decode(text.upper() + "===="))
        except (binascii.Error, ValueError, AttributeError) as error:
            raise IdentityError(
                f"cannot read the node id {ascii(text)[:80]}: "
                f"it has {_TEXT_SIZE} characters of base32"
            ) from error
        if node_id.text != text:  # upper case, or the four spare bits are not zero
            raise IdentityError(f"cannot read the node id {text!a}: it is spelled {node_id.text}")
        return node_id

    @property
    def text(self) -> str:
        """The 52 characters that people see and configurations hold."""
        return base64.b32encode(self).decode("ascii").rstrip("=").lower()

    @property
    def short(self) -> str:
        """The first 8 characters: for logs and screens, never for a decision."""
        return self.text[:_SHORT_SIZE]

    @property
    def uuid(self) -> UUID:
        """The relay's id of this node: UUID version 8 (RFC 9562) of the first 16 bytes."""
        value = int.from_bytes(self[:16], "big")
        value = value & ~(0xF << 76) | 8 << 76  # the version
        value = value & ~(0b11 << 62) | 0b10 << 62  # the variant
        return UUID(int=value)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"NodeId({self.text})"


class PublicIdentity:
    """What a peer showed of itself: its `node_id` and a checked key for each algorithm."""

    __slots__ = ("_verifiers", "entries", "node_id")

    def __init__(self, entries: Sequence[Entry]) -> None:
        """Check `entries` as section 4 asks; IdentityError if anything is wrong."""
        self.entries: tuple[Entry, ...] = tuple(entries)
        if not 1 <= len(self.entries) <= MAX_KEYS:
            raise IdentityError(f"an identity has 1 to {MAX_KEYS} keys, not {len(self.entries)}")
        if len({algorithm for algorithm, _, _ in self.entries}) != len(self.entries):
            names = _shown(*(algorithm for algorithm, _, _ in self.entries))
            raise IdentityError(f"an identity has at most one key for each algorithm, not {names}")
        algorithm, public, binding = self.entries[0]
        if algorithm not in SIGNING:
            raise IdentityError(f"the primary key is of the unknown algorithm {_shown(algorithm)}")
        if binding is not None:
            raise IdentityError("the primary key has no binding")
        primary = _verifier(algorithm, public)
        self.node_id = NodeId.of_key(algorithm, public)
        self._verifiers = {algorithm: primary}
        for algorithm, public, binding in self.entries[1:]:
            if binding is None:
                raise IdentityError(f"the further key of {_shown(algorithm)} has no binding")
            try:
                primary.verify(binding, _binding_message(self.node_id, algorithm, public))
            except SignatureError as error:
                raise IdentityError(
                    f"the binding of the key of {_shown(algorithm)} does not verify"
                ) from error
            # Keys of algorithms that we do not know are bound all the same, then ignored.
            if algorithm in SIGNING:
                self._verifiers[algorithm] = _verifier(algorithm, public)

    @classmethod
    def parse(cls, value: object) -> "PublicIdentity":
        """Read the decoded value of cell 14; IdentityError on anything wrong, whatever it is."""
        if not isinstance(value, list):
            raise IdentityError(f"an identity is an array of keys, not {type(value).__name__}")
        return cls([_entry(item) for item in value])

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the known algorithms, the primary's first."""
        return tuple(self._verifiers)

    @property
    def primary(self) -> str:
        """The name of the primary key's algorithm."""
        return self.entries[0][0]

    def verifier(self, algorithm: str) -> Verifier:
        """Return the key of an algorithm; IdentityError if it has no such key."""
        try:
            return self._verifiers[algorithm]
        except KeyError:
            raise IdentityError(f"the identity has no key of {algorithm!r}") from None

    def cells(self) -> list[list[str | bytes | None]]:
        """Return the value of cell 14."""
        return [[algorithm, public, binding] for algorithm, public, binding in self.entries]

    def __eq__(self, other: object) -> bool:
        # The bindings do not count: a key may be bound by more than one valid signature.
        if not isinstance(other, PublicIdentity):
            return NotImplemented
        return [e[:2] for e in self.entries] == [e[:2] for e in other.entries]

    def __hash__(self) -> int:
        return hash(self.node_id)

    def __repr__(self) -> str:
        return f"<PublicIdentity {self.node_id.short} {', '.join(self.algorithms)}>"


class Identity:
    """One's own identity: the signing keys, the first of which is the primary and gives
    the `node_id`.

    Example:

        from parley import Identity

        identity = Identity.create()
        print(identity.node_id, identity.algorithms)  # ('ed25519',)
    """

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        """Bind `keys` to the first of them; IdentityError if they cannot be an identity."""
        if not keys:
            raise IdentityError(f"an identity has 1 to {MAX_KEYS} keys")
        self._keys = {key.algorithm: key for key in keys}
        if len(self._keys) != len(keys):
            names = _shown(*(key.algorithm for key in keys))
            raise IdentityError(f"an identity has at most one key for each algorithm, not {names}")
        primary, *further = keys
        self.node_id = NodeId.of_key(primary.algorithm, primary.public)
        entries: list[Entry] = [(primary.algorithm, primary.public, None)]
        for key in further:
            message = _binding_message(self.node_id, key.algorithm, key.public)
            entries.append((key.algorithm, key.public, primary.sign(message)))
        self._entries = entries

    @classmethod
    def create(cls, algorithms: Sequence[str] = ("ed25519",)) -> "Identity":
        """Make fresh keys; UnknownAlgorithmError or IdentityError on bad names."""
        return cls([SIGNING[require_name("signing", name)].generate() for name in algorithms])

    @classmethod
    def from_keys(cls, keys: Sequence[SigningKey]) -> "Identity":
        """Make the identity of given keys, the primary first."""
        return cls(keys)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the keys' algorithms, the primary's first."""
        return tuple(self._keys)

    @property
    def keys(self) -> tuple[SigningKey, ...]:
        """The signing keys, the primary first."""
        return tuple(self._keys.values())

    def key(self, algorithm: str) -> SigningKey:
        """Return the key of an algorithm; IdentityError if it has no such key."""
        try:
            return self._keys[algorithm]
        except KeyError:
            raise IdentityError(f"the identity has no key of {algorithm!r}") from None

    def cells(self) -> list[list[str | bytes | None]]:
        """Return the value of cell 14: what the Proof says."""
        return [[algorithm, public, binding] for algorithm, public, binding in self._entries]

    @cached_property
    def public(self) -> PublicIdentity:
        """The half that everybody may see."""
        return PublicIdentity(self._entries)

    def __repr__(self) -> str:
        return f"<Identity {self.node_id.short} {', '.join(self.algorithms)}>"


def _named(algorithm: str) -> bytes:
    name = algorithm.encode("utf-8")
    return bytes((len(name),)) + name


def _binding_message(node_id: NodeId, algorithm: str, public: bytes) -> bytes:
    return b"parley1 key binding" + node_id + _named(algorithm) + public


def _shown(*names: str) -> str:
    """Names of algorithms as a peer gives them, for an error: escaped and bounded in length."""
    return ", ".join(ascii(name[:_SHOWN]) for name in names)


def _verifier(algorithm: str, public: bytes) -> Verifier:
    try:
        return SIGNING[algorithm].verifier(public)
    except SignatureError as error:
        raise IdentityError(f"the {algorithm} key is malformed or weak") from error


def _entry(item: object) -> Entry:
    """Return one array of cell 14 with its shape checked."""
    if not isinstance(item, list) or len(item) != 3:
        size = len(item) if isinstance(item, list) else type(item).__name__
        raise IdentityError(f"a key of an identity is an array of three, not {size}")
    algorithm, public, binding = item
    if not isinstance(algorithm, str) or not isinstance(public, bytes):
        kinds = f"{type(algorithm).__name__} and {type(public).__name__}"
        raise IdentityError(f"a key of an identity is a name and a byte string, not {kinds}")
    if not (binding is None or isinstance(binding, bytes)):
        raise IdentityError(f"a binding is a byte string or null, not {type(binding).__name__}")
    try:
        size = len(algorithm.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise IdentityError(
            f"the name of an algorithm is not Unicode text: {_shown(algorithm)}"
        ) from error
    if not 1 <= size <= _MAX_NAME_SIZE:
        raise IdentityError(f"the name of an algorithm has 1 to {_MAX_NAME_SIZE} bytes, not {size}")
    return algorithm, public, binding
