"""Tests of identities with a recovery key (section 22): node IDs, cell 14, and both files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley._crypto.errors import (
    IdentityError,
    KeyFileExistsError,
    KeyFileMalformedError,
    WrongPassphraseError,
)
from parley._crypto.identity import Identity, PrimaryKey, PublicIdentity, RecoveryKey
from parley._crypto.keyfile import (
    PassphraseCost,
    is_encrypted,
    load_identity,
    load_recovery,
    save_identity,
    save_recovery,
)
from parley._crypto.registry import SIGNING
from parley._lbm.codec import encode

CHEAP = PassphraseCost(passes=1, memory_kib=8)
MAGIC = b"parley1 recovery file\n"
ED25519 = SIGNING["ed25519"]
OLD, RECOVERY = (ED25519.load(bytes([number]) * 32) for number in (1, 2))

each_algorithm = pytest.mark.parametrize("algorithm", SIGNING)


def recoverable(*algorithms: str) -> tuple[Identity, RecoveryKey]:
    return Identity.create_recoverable(algorithms or ("ed25519",))


def put(path: Path, data: bytes) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
    return path


# Node IDs and cell 14.


@each_algorithm
def test_the_node_id_covers_the_recovery_key(algorithm: str) -> None:
    identity, recovery = recoverable(algorithm)
    commitment = identity.primary_key.commitment
    assert commitment is not None
    assert recovery.node_id == identity.node_id == identity.public.node_id
    assert recovery.primary_key == identity.primary_key == identity.public.primary_key
    assert recovery.key.algorithm == algorithm
    first_form = Identity.from_keys(identity.keys)
    another = Identity.from_keys(identity.keys, bytes(32))
    assert len({identity.node_id, first_form.node_id, another.node_id}) == 3
    assert identity.cells()[1] == ["recovery", commitment, None]


def test_a_recovery_key_may_be_stronger_but_not_weaker() -> None:
    identity, recovery = Identity.create_recoverable(("ed25519",), recovery="ml-dsa-65")
    assert recovery.key.algorithm == "ml-dsa-65"
    assert recovery.node_id == identity.node_id
    with pytest.raises(IdentityError, match="the primary key is ml-dsa-65, so it must be too"):
        Identity.create_recoverable(("ml-dsa-65",), recovery="ed25519")


def test_recovery_is_never_offered() -> None:
    identity, _ = recoverable(*SIGNING)
    assert identity.algorithms == identity.public.algorithms == tuple(SIGNING)
    with pytest.raises(IdentityError):
        identity.public.verifier("recovery")


def test_further_keys_are_bound_to_the_id_of_the_second_form() -> None:
    identity, _ = recoverable("ed25519", "ecdsa-p256")
    cells = identity.cells()
    assert PublicIdentity.parse(cells) == identity.public
    first_form = Identity.from_keys(identity.keys)
    for moved in ([cells[0], cells[2]], [*cells[:2], first_form.cells()[1]]):
        with pytest.raises(IdentityError, match="does not verify"):
            PublicIdentity.parse(moved)
    assert identity.public != first_form.public


def changed(change: Callable[[list[Any]], object]) -> list[Any]:
    cells = recoverable("ed25519", "ecdsa-p256")[0].cells()
    change(cells)
    return cells


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (changed(lambda cells: cells.insert(0, cells.pop(1))), "must be the second"),
        (changed(lambda cells: cells.append(cells.pop(1))), "must be the second"),
        (changed(lambda cells: cells.append(cells[1])), "more than one key"),
        (changed(lambda cells: cells[1].__setitem__(2, bytes(64))), "without a binding"),
        (changed(lambda cells: cells[1].__setitem__(1, bytes(31))), "with 32 bytes"),
        (changed(lambda cells: cells[1].__setitem__(1, bytes(33))), "with 32 bytes"),
        (
            changed(lambda cells: cells[1].__setitem__(0, "delegation")),
            "unsupported identity entry 'delegation'; upgrade this node",
        ),
        (
            changed(lambda cells: cells[2].__setitem__(2, None)),
            "unsupported identity entry 'ecdsa-p256'; upgrade this node",
        ),
        (
            changed(lambda cells: cells.extend([f"x{n}", b"", bytes(64)] for n in range(6))),
            "identity of 9 keys",
        ),
    ],
)
def test_invalid_entries(cells: list[Any], reason: str) -> None:
    with pytest.raises(IdentityError, match=reason):
        PublicIdentity.parse(cells)


def test_only_a_proof_has_further_keys() -> None:
    identity, _ = recoverable("ed25519", "ecdsa-p256")
    assert PrimaryKey.parse(identity.cells()[:2]) == identity.primary_key
    assert identity.primary_key.cells() == identity.cells()[:2]
    plain = Identity.create()
    assert PrimaryKey.parse(plain.cells()) == plain.primary_key
    for cells in (identity.cells(), [], [identity.cells()[0], identity.cells()[2]], None):
        with pytest.raises(IdentityError):
            PrimaryKey.parse(cells)


def test_a_recovery_key_that_matches_no_identity() -> None:
    with pytest.raises(IdentityError, match="it is the primary key"):
        RecoveryKey(OLD, "ed25519", OLD.public)
    for algorithm, public in (("rsa", OLD.public), ("ed25519", bytes(32)), ("ed25519", b"")):
        with pytest.raises(IdentityError):
            RecoveryKey(RECOVERY, algorithm, public)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_commitment_has_32_bytes(size: int) -> None:
    with pytest.raises(IdentityError):
        Identity.from_keys([OLD], bytes(size))


def test_no_secret_in_repr() -> None:
    _, recovery = recoverable()
    assert recovery.node_id.short in repr(recovery)
    assert recovery.key.private_bytes().hex() not in repr(recovery)


# Files.


@pytest.mark.parametrize("passphrase", [None, b"correct horse"], ids=["plain", "encrypted"])
@each_algorithm
def test_saved_files_are_loaded(tmp_path: Path, algorithm: str, passphrase: bytes | None) -> None:
    identity, recovery = recoverable(algorithm)
    save_identity(tmp_path / "key", identity, passphrase, cost=CHEAP)
    save_recovery(tmp_path / "recovery", recovery, passphrase, cost=CHEAP)
    assert is_encrypted(tmp_path / "recovery") is (passphrase is not None)
    loaded = load_recovery(tmp_path / "recovery", passphrase)
    assert load_identity(tmp_path / "key", passphrase).public == identity.public
    assert loaded.primary_key == identity.primary_key
    assert loaded.key.private_bytes() == recovery.key.private_bytes()
    assert (tmp_path / "recovery").stat().st_mode & 0o777 == 0o600


def test_the_formats(tmp_path: Path) -> None:
    recovery = RecoveryKey(RECOVERY, "ed25519", OLD.public)
    save_recovery(tmp_path / "recovery", recovery)
    payload = {
        256: [["ed25519", RECOVERY.private_bytes(), RECOVERY.public]],
        257: [["ed25519", OLD.public]],
    }
    assert (tmp_path / "recovery").read_bytes() == MAGIC + b"\0" + encode(payload)
    commitment = recovery.primary_key.commitment
    save_identity(tmp_path / "key", Identity.from_keys([OLD], commitment))
    keys = [["ed25519", OLD.private_bytes(), OLD.public]]
    data = encode({256: keys, 257: commitment})
    assert (tmp_path / "key").read_bytes() == b"parley1 key file\n\0" + data


def test_a_recovery_file_is_never_overwritten(tmp_path: Path) -> None:
    path = put(tmp_path / "recovery", b"dear")
    with pytest.raises(KeyFileExistsError):
        save_recovery(path, recoverable()[1])
    assert path.read_bytes() == b"dear"


def test_a_wrong_passphrase(tmp_path: Path) -> None:
    save_recovery(tmp_path / "recovery", recoverable()[1], b"correct horse", cost=CHEAP)
    with pytest.raises(WrongPassphraseError):
        load_recovery(tmp_path / "recovery", b"battery staple")


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    identity, recovery = recoverable()
    save_identity(tmp_path / "key", identity)
    save_recovery(tmp_path / "recovery", recovery)
    with pytest.raises(KeyFileMalformedError, match="not a recovery file"):
        load_recovery(tmp_path / "key")
    with pytest.raises(KeyFileMalformedError, match="not a key file"):
        load_identity(tmp_path / "recovery")


KEY = ["ed25519", RECOVERY.private_bytes(), RECOVERY.public]
PRIMARY = ["ed25519", OLD.public]


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {256: [KEY]},
        {257: [PRIMARY]},
        {0: b"", 256: [KEY], 257: [PRIMARY]},
        {256: [KEY], 257: [PRIMARY], 258: 1},
        {256: [KEY, KEY], 257: [PRIMARY]},
        {256: [KEY], 257: [PRIMARY, PRIMARY]},
        {256: [], 257: []},
        {256: KEY, 257: PRIMARY},
        {256: [KEY], 257: [[*PRIMARY, None]]},
        {256: [KEY], 257: [["ed25519", "text"]]},
        {256: [KEY], 257: [["rsa", OLD.public]]},
        {256: [KEY], 257: [["ed25519", OLD.public[1:]]]},
        {256: [KEY], 257: [["ed25519", RECOVERY.public]]},
        {256: [["ed25519", RECOVERY.private_bytes(), OLD.public]], 257: [PRIMARY]},
    ],
)
def test_invalid_recovery_files(tmp_path: Path, payload: dict[int, Any]) -> None:
    with pytest.raises(KeyFileMalformedError):
        load_recovery(put(tmp_path / "recovery", MAGIC + b"\0" + encode(payload)))


@pytest.mark.parametrize("commitment", [None, 1, "text", b"", bytes(31), bytes(33), [bytes(32)]])
def test_invalid_commitments_of_key_files(tmp_path: Path, commitment: Any) -> None:
    keys = [["ed25519", OLD.private_bytes(), OLD.public]]
    data = b"parley1 key file\n\0" + encode({256: keys, 257: commitment})
    with pytest.raises(KeyFileMalformedError):
        load_identity(put(tmp_path / "key", data))


def test_every_changed_byte_of_a_recovery_file_is_found(tmp_path: Path) -> None:
    """Except of the primary key, a changed bit of which is mostly another key."""
    _, recovery = recoverable()
    save_recovery(tmp_path / "recovery", recovery)
    data = (tmp_path / "recovery").read_bytes()
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 1 << place % 8
        try:
            found = load_recovery(put(tmp_path / "recovery", bytes(altered)))
        except KeyFileMalformedError:
            continue
        assert found.node_id != recovery.node_id
