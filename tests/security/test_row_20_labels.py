"""Row 20, labels changed by accident: golden vectors cover every label, number and wire structure.

The vectors are run by tests/crypto/test_vectors.py, tests/lbm/test_vectors.py,
tests/node/protocol/test_vectors.py, test_vectors_handshake.py and test_vectors_connections.py. Two
sessions recorded by another implementation are run by tests/reference/test_sessions.py. These tests
check that the vectors are complete and detect each change.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

import pytest

from parley._crypto import hashing, identity, key_schedule, record_protection
from parley._lbm.keys import KEYS
from parley._node.apps.pairing import code
from parley._node.federation import envelopes
from parley._node.protocol import codes, handshake, resumption
from tests.crypto import test_vectors as of_crypto
from tests.node.apps.pairing import test_vectors_codes as of_codes
from tests.node.federation import test_vectors as of_federation
from tests.node.protocol import test_vectors_handshake as of_handshakes
from tests.node.protocol import test_vectors_resume as of_resuming
from tests.vectors.load import Vector, read

ROOT: Final = Path(__file__).parents[2]
VECTORS: Final = ROOT / "tests" / "vectors"

# All labels that separate the uses of keys and hashes. A change here changes the protocol and its
# version.
LABELS: Final = {
    "ap initiator",
    "ap responder",
    "code",
    "commit",
    "derived",
    "exporter",
    "hs initiator",
    "hs responder",
    "rekey",
    "resume",
    "resume tag",
    "seal mask",
    "session",
    "stream iv",
    "stream key",
    "update",
}
DOMAINS: Final = {
    b"parley1 ",  # before each of the above
    b"parley1 chain",
    b"parley1 code session",
    b"parley1 code words",
    b"parley1 envelope",
    b"parley1 hello",
    b"parley1 key binding",
    b"parley1 node id",
    b"parley1 resume",
    b"parley1 resume hello",
    b"parley1 seal",
}
# The recordings were made by another implementation and never change.
RECORDINGS: Final = {
    "session-default-suite.json": (
        "b4010441f43d0848499645378d255c37ad8a5e0e282e822400135e758d5c6118"
    ),
    "session-each-p256-blake2b-chacha.json": (
        "78dc01da2e5bd73cbaebfe823c5d00ac461b01dae11fb0c1d6cb60d78fb22765"
    ),
}

MODULES: Final = (hashing, key_schedule, record_protection, identity, resumption, envelopes, code)


def test_each_has_its_vector_and_its_place_in_the_document() -> None:
    assert {vector["label"] for vector in read("labels")["vectors"]} == LABELS
    pages = [ROOT / "docs" / "protocol.md", *(ROOT / "docs" / "protocol").glob("*.md")]
    document = "".join(page.read_text("utf-8") for page in pages)
    written = LABELS | {domain.decode() for domain in DOMAINS}
    assert [text for text in sorted(written) if f'"{text}' not in document] == []


# Each change of a label is detected.


@dataclass(frozen=True)
class Place:
    """A constant of a function or module."""

    owner: ModuleType | FunctionType
    name: str
    value: bytes | str


def functions(module: ModuleType) -> Iterator[FunctionType]:
    """Return all functions that a module defines, including methods."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if isinstance(thing, FunctionType):
            yield thing
        elif inspect.isclass(thing):
            for member in vars(thing).values():
                inner = getattr(member, "__func__", member)
                if isinstance(inner, FunctionType):
                    yield inner


def places() -> list[Place]:
    """Return all places where the key schedule has a label, a domain or a chain's tag."""
    # The labels of cell 12 are distinguished by their users.
    found = [
        Place(handshake, "HELLO_LABEL", key_schedule.HELLO_LABEL),
        Place(resumption, "RESUME_LABEL", key_schedule.RESUME_LABEL),
    ]
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, bytes) and name.startswith("_") and not name.startswith("__"):
                found.append(Place(module, name, value))
        for function in functions(module):
            found += [
                Place(function, function.__qualname__, value)
                for value in function.__code__.co_consts
                if isinstance(value, str | bytes) and value in LABELS | DOMAINS
            ]
    return found


PLACES: Final = places()
CHECKS: Final[tuple[tuple[Callable[[Vector], None], str, str], ...]] = (
    (of_crypto.test_the_key_schedule, "schedule", ""),
    (of_crypto.test_a_blob, "stream-keys", ""),
    (of_crypto.test_a_seal, "seals", ""),
    (of_crypto.test_a_node_id, "identity", "node-id"),
    (of_crypto.test_a_binding, "identity", "binding"),
    (of_handshakes.test_what_a_responder_decides, "handshake", "respond"),
    (of_resuming.test_k_and_its_tags, "resume", "key"),
    (of_resuming.test_what_is_written, "resume", "events"),
    (of_federation.test_an_envelope, "federation", "envelope"),
    (of_codes.test_an_exchange, "codes", "exchange"),
)


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """Clear the caches of labels in the key schedule, before and after the change."""
    forget()
    yield
    forget()


def forget() -> None:
    for module in MODULES:
        for thing in vars(module).values():
            if hasattr(thing, "cache_clear"):
                thing.cache_clear()


def noticed() -> bool:
    """Return whether any vector of the key schedule fails."""
    for sweep, file, kind in CHECKS:
        check = inspect.unwrap(sweep)
        for vector in read(file)["vectors"]:
            wanted = vector.get("kind", "") == kind if kind else "fails" not in vector
            if wanted:
                try:
                    check(vector)
                except (Exception, pytest.fail.Exception):
                    return True
    return False


@pytest.mark.pure
def test_nothing_fails_that_was_not_changed() -> None:
    assert not noticed()
    values = {place.value for place in PLACES}
    assert values >= LABELS | DOMAINS


@pytest.mark.parametrize("place", PLACES, ids=[f"{place.name} {place.value!r}" for place in PLACES])
@pytest.mark.pure
def test_a_changed_label_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    other: bytes | str = (
        place.value + "x" if isinstance(place.value, str) else place.value[:-1] + b"\x7e"
    )
    if isinstance(place.owner, ModuleType):
        monkeypatch.setattr(place.owner, place.name, other)
    else:
        code = place.owner.__code__
        constants = tuple(other if each == place.value else each for each in code.co_consts)
        monkeypatch.setattr(place.owner, "__code__", code.replace(co_consts=constants))
    assert noticed()


# Numbers and structures.


def table(name: str) -> set[int]:
    """Return the numbers of one of the tables."""
    return {vector["value"] for vector in read("tables")["vectors"] if vector["table"] == name}


def test_every_number_of_the_wire_is_in_the_tables() -> None:
    """Both directions are checked: a new number in the code that is missing in the tables fails."""
    results = {code.value for code in codes.ResultCode}
    assert table("result codes") == results
    # Reset may carry some of these.
    assert table("codes") | results >= {code.value for code in codes.CloseCode if code >= 0}
    assert table("cells") == set(KEYS)


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_recordings_are_those_that_were_made(name: str) -> None:
    assert hashlib.sha256((VECTORS / name).read_bytes()).hexdigest() == RECORDINGS[name]


def test_the_version_is_that_of_the_labels() -> None:
    """The 1 in `parley1` is the protocol's version."""
    assert {domain[: len(b"parley1")] for domain in DOMAINS} == {b"parley%d" % codes.VERSION}
