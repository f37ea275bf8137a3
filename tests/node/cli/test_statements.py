"""`parley id new --recovery`, `id show --recovery`, `id succeed` and `id revoke`."""

from pathlib import Path

import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import (
    PassphraseCost,
    load_identity,
    load_recovery,
    save_identity,
    save_recovery,
)
from parley._node.trust.statement_file import load_statement
from parley._node.trust.words import fingerprint
from tests.node.cli.conftest import Parley


def made(parley: Parley, directory: Path, name: str) -> tuple[Path, Path]:
    """Create an identity with a recovery file; return both paths."""
    key, recovery = directory / f"{name}.key", directory / f"{name}.recovery"
    assert parley("id", "new", str(key), "--recovery", str(recovery)).code == 0
    return key, recovery


def test_new_with_a_recovery_file(parley: Parley, tmp_path: Path) -> None:
    key, recovery = tmp_path / "key", tmp_path / "recovery"
    done = parley("id", "new", str(key), "--recovery", str(recovery))
    assert done.code == 0
    assert f"recovery    {recovery}\n" in done.out
    assert done.err == (
        f"move {recovery} to another machine or medium; without it, this identity cannot get a "
        "successor\n"
    )
    identity = load_identity(key)
    assert load_recovery(recovery).node_id == identity.node_id
    assert str(identity.node_id) in done.out
    for path in (key, recovery):
        assert path.stat().st_mode & 0o777 == 0o600
    shown = parley("id", "show", str(key), "--recovery", str(recovery))
    assert (shown.code, shown.out) == (0, done.out)
    assert "recovery    with a recovery file\n" in parley("id", "show", str(key)).out
    line = parley("id", "show", str(key), "--recovery", str(recovery), "--json").last
    assert (line["recoverable"], line["recovery"]) == (True, str(recovery))
    assert load_recovery(recovery).key.private_bytes().hex() not in done.out


def test_the_users_own_key_can_have_a_recovery_file(parley: Parley, tmp_path: Path) -> None:
    recovery = tmp_path / "recovery"
    assert parley("id", "new", "--recovery", str(recovery)).code == 0
    shown = parley("id", "show", "--recovery", str(recovery), "--json")
    assert shown.last["node_id"] == str(load_recovery(recovery).node_id)


def test_a_key_that_exists_keeps_its_recovery_file(
    parley: Parley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating the key can fail after the file is in place."""

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    recovery = tmp_path / "recovery"
    with monkeypatch.context() as patch:
        patch.setattr("parley._node.cli.default_identity.sync_directory", fail)
        assert parley("id", "new", "--recovery", str(recovery)).code != 0
    shown = parley("id", "show", "--recovery", str(recovery), "--json")
    assert shown.last["node_id"] == str(load_recovery(recovery).node_id)


def test_an_ml_dsa_identity_gets_an_ml_dsa_recovery_key(parley: Parley, tmp_path: Path) -> None:
    key, recovery = tmp_path / "key", tmp_path / "recovery"
    names = "ml-dsa-65,ed25519"
    assert (
        parley("id", "new", str(key), "--algorithm", names, "--recovery", str(recovery)).code == 0
    )
    assert load_recovery(recovery).key.algorithm == "ml-dsa-65"


def test_a_recovery_key_can_be_stronger_than_the_key(parley: Parley, tmp_path: Path) -> None:
    key, recovery, out = tmp_path / "key", tmp_path / "recovery", tmp_path / "succession"
    options = ("--recovery", str(recovery), "--recovery-algorithm", "ml-dsa-65")
    done = parley("id", "new", str(key), *options, "--json")
    assert (done.code, done.last["algorithms"]) == (0, ["ed25519"])
    assert load_recovery(recovery).key.algorithm == "ml-dsa-65"
    assert parley("id", "show", str(key), "--recovery", str(recovery)).code == 0
    new, _ = made(parley, tmp_path, "new")
    done = parley("id", "succeed", str(new), "--recovery", str(recovery), "--out", str(out))
    assert done.code == 0
    load_statement(out).verify()


def test_invalid_recovery_algorithms(parley: Parley, tmp_path: Path) -> None:
    key, recovery = tmp_path / "key", tmp_path / "recovery"
    weaker = ("--algorithm", "ml-dsa-65", "--recovery-algorithm", "ed25519")
    for options, text in (
        (["--recovery", str(recovery), "--recovery-algorithm", "rsa"], "'rsa'"),
        (["--recovery", str(recovery), "--recovery-algorithm", ""], "''"),
        (["--recovery-algorithm", "ml-dsa-65"], "it requires --recovery"),
        ([*weaker, "--recovery", str(recovery)], "the primary key is ml-dsa-65, so it must be too"),
    ):
        done = parley("id", "new", str(key), *options)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert text in done.err
    assert not key.exists()
    assert not recovery.exists()


def test_no_half_of_an_identity_is_left(parley: Parley, tmp_path: Path) -> None:
    key, recovery = tmp_path / "key", tmp_path / "recovery"
    key.write_bytes(b"dear")
    done = parley("id", "new", str(key), "--recovery", str(recovery))
    assert (done.code, done.out) == (6, "")
    assert "a file already exists there" in done.err
    assert key.read_bytes() == b"dear"
    assert not recovery.exists()
    done = parley("id", "new", str(recovery), "--recovery", str(recovery))
    assert done == (
        2,
        "",
        f"parley: cannot create '{recovery}': the key file and the recovery file need different "
        "paths\n",
    )
    assert not recovery.exists()
    recovery.write_bytes(b"dear too")
    other = tmp_path / "other"
    done = parley("id", "new", str(other), "--recovery", str(recovery))
    assert (done.code, recovery.read_bytes()) == (6, b"dear too")
    assert not other.exists()


def test_a_recovery_file_of_another_identity(parley: Parley, tmp_path: Path) -> None:
    key, recovery = made(parley, tmp_path, "one")
    other, _ = made(parley, tmp_path, "other")
    done = parley("id", "show", str(other), "--recovery", str(recovery))
    assert (done.code, done.out) == (6, "")
    assert done.err == (
        f"parley: cannot recover the identity of '{other}' with '{recovery}': the file belongs to "
        f"the node {load_identity(key).node_id}\n"
    )
    plain = tmp_path / "plain"
    assert parley("id", "new", str(plain)).code == 0
    done = parley("id", "show", str(plain), "--recovery", str(recovery))
    assert done.code == 6
    assert "was created without a recovery key" in done.err
    done = parley("id", "show", str(key), "--recovery", str(other))
    assert "it is not a recovery file of version 1" in done.err


def test_succeed(parley: Parley, tmp_path: Path) -> None:
    old, recovery = made(parley, tmp_path, "old")
    new, _ = made(parley, tmp_path, "new")
    path = tmp_path / "statement"
    old_id, new_id = load_identity(old).node_id, load_identity(new).node_id
    old.unlink()  # the key was lost
    done = parley("id", "succeed", str(new), "--recovery", str(recovery), "--out", str(path))
    assert done.code == 0
    assert done.out == (
        f"ends        {old_id}\nwords       {fingerprint(old_id)}\n"
        f"successor   {new_id}\nwords       {fingerprint(new_id)}\n"
        f"signed by   the recovery key\nstatement   {path}\n"
    )
    assert done.err == (
        f"give {path} to the new node and to your peers, who run: parley peers apply {path}\n"
    )
    statement = load_statement(path)
    assert (statement.origin, statement.successor) == (old_id, new_id)
    assert statement.by_recovery
    assert path.stat().st_mode & 0o777 == 0o600


def test_succeed_as_json(parley: Parley, tmp_path: Path) -> None:
    old, recovery = made(parley, tmp_path, "old")
    new, _ = made(parley, tmp_path, "new")
    path = str(tmp_path / "statement")
    done = parley(
        *("id", "succeed", str(new), "--recovery", str(recovery), "--out", path, "--json")
    )
    (line,) = done.lines
    old_id, new_id = load_identity(old).node_id, load_identity(new).node_id
    made_ms = load_statement(path).made_ms
    assert line == {
        "event": "done",
        "path": path,
        "kind": "succession",
        "origin": str(old_id),
        "origin_words": fingerprint(old_id),
        "successor": str(new_id),
        "successor_words": fingerprint(new_id),
        "by_recovery": True,
        "made_ms": made_ms,
    }


def test_succeed_an_identity_without_a_recovery_key(parley: Parley, tmp_path: Path) -> None:
    old, new, path = (tmp_path / name for name in ("old", "new", "statement"))
    for key in (old, new):
        assert parley("id", "new", str(key)).code == 0
    done = parley("id", "succeed", str(new), "--old-key", str(old), "--out", str(path))
    assert done.code == 0
    assert "signed by   the primary key\n" in done.out
    old_id, new_id = load_identity(old).node_id, load_identity(new).node_id
    assert f"parley peers accept {old_id} --as {new_id}\n" in done.err
    assert not load_statement(path).by_recovery


def test_what_cannot_succeed(parley: Parley, tmp_path: Path) -> None:
    old, recovery = made(parley, tmp_path, "old")
    new, _ = made(parley, tmp_path, "new")
    plain, path = tmp_path / "plain", tmp_path / "statement"
    assert parley("id", "new", str(plain)).code == 0
    by_recovery, by_key = ("--recovery", str(recovery)), ("--old-key", str(old))
    for key, options, code, sentence in (
        (new, (), 2, "give either --recovery, or --old-key"),
        (new, (*by_recovery, *by_key), 2, "give either --recovery, or --old-key"),
        (new, by_key, 2, "only that can name a successor; give --recovery FILE"),
        (plain, by_recovery, 2, "create it with: parley id new KEY --recovery FILE"),
        (old, by_recovery, 2, "it is the key of the old identity; create another one with:"),
        (new, ("--recovery", str(old)), 6, "it is a key file; it is not a recovery file of"),
        (recovery, by_recovery, 6, "it is a recovery file; it is not a key file of version 1"),
    ):
        done = parley("id", "succeed", str(key), *options, "--out", str(path))
        assert (done.code, done.out) == (code, ""), done
        assert sentence in done.err
        assert done.err.count("\n") == 1
        assert not path.exists()
    assert parley("id", "succeed", str(new), *by_recovery).code == 2  # without --out


def test_revoke(parley: Parley, tmp_path: Path) -> None:
    key, recovery = made(parley, tmp_path, "bob")
    node_id = load_identity(key).node_id
    for name, arguments, signer in (
        ("one", [str(key)], "primary"),
        ("two", ["--recovery", str(recovery)], "recovery"),
    ):
        path = tmp_path / name
        done = parley("id", "revoke", *arguments, "--out", str(path))
        assert done.code == 0
        assert done.out == (
            f"ends        {node_id}\nwords       {fingerprint(node_id)}\n"
            f"signed by   the {signer} key\nstatement   {path}\n"
        )
        assert f"keep {path} secret until you need it" in done.err
        statement = load_statement(path)
        assert (statement.kind, statement.origin) == ("revocation", node_id)
        assert statement.by_recovery == (signer == "recovery")


def test_revoke_the_users_own_key(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "revocation"
    done = parley("id", "revoke", "--out", str(path))
    assert done.code == 6
    assert "it does not exist yet; create it with: parley id new" in done.err
    assert parley("id", "new").code == 0
    done = parley("id", "revoke", "--out", str(path), "--json")
    assert done.last["successor"] is None
    assert done.last["origin"] == parley("id", "show", "--json").last["node_id"]
    both = parley("id", "revoke", str(path), "--recovery", str(path), "--out", str(path))
    assert both.code == 2


def test_a_statement_is_never_overwritten(parley: Parley, tmp_path: Path) -> None:
    key, _ = made(parley, tmp_path, "bob")
    path = tmp_path / "statement"
    path.write_bytes(b"dear")
    done = parley("id", "revoke", str(key), "--out", str(path))
    assert (done.code, path.read_bytes()) == (6, b"dear")
    assert f"cannot create the statement file '{path}'" in done.err


@pytest.mark.parametrize("same", [True, False], ids=["one passphrase", "two passphrases"])
def test_passphrases(parley: Parley, tmp_path: Path, same: bool) -> None:
    cost = PassphraseCost(passes=1, memory_kib=8)
    old, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    phrases = b"correct horse", b"correct horse" if same else b"battery staple"
    files = [tmp_path / "one", tmp_path / "two"]
    for file, phrase in zip(files, phrases, strict=True):
        file.write_bytes(phrase)
        file.chmod(0o600)
    save_identity(tmp_path / "old", old, phrases[0], cost=cost)
    save_identity(tmp_path / "new", new, phrases[0], cost=cost)
    save_recovery(tmp_path / "recovery", recovery, phrases[1], cost=cost)
    given = ["--recovery", str(tmp_path / "recovery"), "--passphrase-file", str(files[0])]
    show = ["id", "show", str(tmp_path / "old"), *given]
    succeed = ["id", "succeed", str(tmp_path / "new"), *given, "--out", str(tmp_path / "out")]
    if not same:
        assert "the passphrase is wrong" in parley(*show).err
        assert "the passphrase is wrong" in parley(*succeed).err
        show += ["--recovery-passphrase-file", str(files[1])]
        succeed += ["--old-passphrase-file", str(files[1])]
    assert parley(*show).code == 0
    assert parley(*succeed).code == 0
    assert load_statement(tmp_path / "out").successor == new.node_id
