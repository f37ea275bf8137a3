"""`parley id`: create and show key and recovery files, and change their passphrases."""

import os
from pathlib import Path

from parley._crypto.errors import PassphraseError, PassphraseNeededError
from parley._crypto.identity import Identity, RecoveryKey
from parley._crypto.keyfile import (
    change_passphrase,
    describe_keyfile,
    is_auditor_file,
    is_encrypted,
    load_auditor_key,
    load_identity,
    load_recovery,
    save_identity,
    save_recovery,
)
from parley._crypto.registry import require_name
from parley._node.cli.default_identity import create_default_key, default_key_path
from parley._node.cli.journal.keys import show_auditor_key
from parley._node.cli.output import Output
from parley._node.cli.param_types import parse_names, read_passphrase
from parley._node.cli.prompts import can_prompt, prompt_passphrase
from parley._node.errors import ConfigError, FileError
from parley._node.trust.words import fingerprint


def new(
    path: Path | None,
    algorithm: str,
    recovery: Path | None,
    recovery_algorithm: str | None,
    passphrase_file: Path | None,
    recovery_passphrase_file: Path | None,
    as_json: bool,
) -> None:
    names = parse_names("signing", algorithm, option="algorithm")
    passphrase = read_passphrase(passphrase_file)
    out = Output(as_json)
    if recovery is None:
        for option, value in (
            ("--recovery-algorithm", recovery_algorithm),
            ("--recovery-passphrase-file", recovery_passphrase_file),
        ):
            if value is not None:
                raise ConfigError(f"cannot use {option} '{value}': it requires --recovery")
        identity = Identity.create(names)
        path = _save(path, identity, passphrase)
        _show(out, path, identity, passphrase is not None)
        return
    target = default_key_path() if path is None else path
    if os.path.abspath(recovery) == os.path.abspath(target):
        raise ConfigError(
            f"cannot create '{recovery}': the key file and the recovery file need different paths"
        )
    stronger = None if recovery_algorithm is None else require_name("signing", recovery_algorithm)
    identity, key = Identity.create_recoverable(names, recovery=stronger)
    save_recovery(recovery, key, read_passphrase(recovery_passphrase_file or passphrase_file))
    existed = os.path.lexists(target)
    try:
        path = _save(path, identity, passphrase)
    except BaseException:
        if existed or not os.path.lexists(target):
            recovery.unlink()  # it recovers nothing
        raise
    out.remark(
        f"move {recovery} to another machine or medium; without it, this identity cannot get a "
        "successor"
    )
    _show(out, path, identity, passphrase is not None, recovery)


def _save(path: Path | None, identity: Identity, passphrase: bytes | None) -> Path:
    if path is None:
        path = default_key_path()
        create_default_key(path, identity, passphrase)
    else:
        save_identity(path, identity, passphrase)
    return path


def show(
    path: Path | None,
    recovery: Path | None,
    passphrase_file: Path | None,
    recovery_passphrase_file: Path | None,
    as_json: bool,
) -> None:
    if path is not None and is_auditor_file(path):
        show_auditor_key(
            Output(as_json), path, load_auditor_key(path, read_passphrase(passphrase_file))
        )
        return
    path = path or existing_default_key("show")
    encrypted = describe_keyfile(path)
    identity = load_identity(path, read_passphrase(passphrase_file))
    if recovery is not None:
        passphrase = read_passphrase(recovery_passphrase_file or passphrase_file)
        _require_recovery(path, identity, recovery, load_recovery(recovery, passphrase))
    _show(Output(as_json), path, identity, encrypted, recovery)


def passwd(
    path: Path | None,
    passphrase_file: Path | None,
    new_passphrase_file: Path | None,
    no_passphrase: bool,
    as_json: bool,
) -> None:
    if no_passphrase and new_passphrase_file is not None:
        raise ConfigError(
            f"cannot use --new-passphrase-file '{new_passphrase_file}' with --no-passphrase: leave "
            "one of the options out"
        )
    out = Output(as_json)
    path = path or existing_default_key("change the passphrase of")
    old, new = read_passphrase(passphrase_file), read_passphrase(new_passphrase_file)
    if old is None and is_encrypted(path):
        old = _ask_present(out, path)
    if new is None and not no_passphrase:
        new = _ask_new(out, path)
    change_passphrase(path, old, new)
    what = "removed the passphrase of" if new is None else "changed the passphrase of"
    out.effect = f"{what} {path}"
    out.print(f"{what} {path}")
    out.remark("copies and backups of the file keep the old passphrase: delete or replace them")
    out.done(path=str(path), encrypted=new is not None)


def existing_default_key(verb: str) -> Path:
    """Return the path of the user's own key; FileError if it doesn't exist."""
    path = default_key_path()
    if not path.exists():
        raise FileError(
            f"cannot {verb} your key '{path}': it does not exist yet; create it with: parley id new"
        )
    return path


def _require_recovery(path: Path, identity: Identity, recovery: Path, key: RecoveryKey) -> None:
    if key.node_id == identity.node_id:
        return
    if identity.primary_key.commitment is None:
        raise FileError(
            f"cannot recover the identity of '{path}': it was created without a recovery key"
        )
    raise FileError(
        f"cannot recover the identity of '{path}' with '{recovery}': the file belongs to the node "
        f"{key.node_id}"
    )


def _ask_present(out: Output, path: Path) -> bytes:
    if not can_prompt(out):
        raise PassphraseNeededError(
            f"cannot open the key file '{path}': it is encrypted; give --passphrase-file"
        )
    return prompt_passphrase(f"Present passphrase of {path}")


def _ask_new(out: Output, path: Path) -> bytes:
    if not can_prompt(out):
        raise ConfigError(
            f"cannot change the passphrase of '{path}': there is no terminal to ask for the new "
            "one; give --new-passphrase-file or --no-passphrase"
        )
    new = prompt_passphrase(f"New passphrase of {path}")
    if not new:
        raise PassphraseError(
            f"cannot change the passphrase of '{path}': the new one is empty; give "
            "--no-passphrase to remove it"
        )
    if prompt_passphrase("The new passphrase again") != new:
        raise PassphraseError(
            f"cannot change the passphrase of '{path}': the two new ones differ; try again"
        )
    return new


def _show(
    out: Output, path: Path, identity: Identity, encrypted: bool, recovery: Path | None = None
) -> None:
    node_id = identity.node_id
    out.print(f"node ID     {node_id}")
    out.print(f"words       {fingerprint(node_id)}")
    out.print(f"uuid        {node_id.uuid}")
    out.print(f"algorithms  {', '.join(identity.algorithms)}")
    out.print(f"key file    {path} ({'with' if encrypted else 'without'} passphrase)")
    recoverable = identity.primary_key.commitment is not None
    if recoverable:
        out.print(f"recovery    {recovery or 'with a recovery file'}")
    out.done(
        path=str(path),
        node_id=str(node_id),
        words=fingerprint(node_id),
        uuid=str(node_id.uuid),
        algorithms=list(identity.algorithms),
        public_keys={key.algorithm: key.public.hex() for key in identity.keys},
        encrypted=encrypted,
        recoverable=recoverable,
        **({} if recovery is None else {"recovery": str(recovery)}),
    )
