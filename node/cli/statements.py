"""`parley id succeed` and `parley id revoke`: create key statements (section 22)."""

from pathlib import Path
from typing import Any

from parley._crypto.identity import Identity, RecoveryKey
from parley._crypto.keyfile import load_identity, load_recovery
from parley._crypto.statements import Statement, create_revocation, create_succession
from parley._node.cli.identity import existing_default_key
from parley._node.cli.output import Output
from parley._node.cli.param_types import read_passphrase
from parley._node.errors import ConfigError
from parley._node.trust.statement_file import save_statement
from parley._node.trust.words import fingerprint


def succeed(
    new_key: Path,
    recovery: Path | None,
    old_key: Path | None,
    statement_path: Path,
    passphrase_file: Path | None,
    old_passphrase_file: Path | None,
    as_json: bool,
) -> None:
    successor = load_identity(new_key, read_passphrase(passphrase_file))
    passphrase = read_passphrase(old_passphrase_file or passphrase_file)
    signer: RecoveryKey | Identity
    if recovery is not None and old_key is None:
        signer = load_recovery(recovery, passphrase)
        if successor.primary_key.commitment is None:
            raise ConfigError(
                f"cannot name '{new_key}' as the successor: it has no recovery key, but the old "
                "identity has one; create it with: parley id new KEY --recovery FILE"
            )
    elif old_key is not None and recovery is None:
        signer = load_identity(old_key, passphrase)
        if signer.primary_key.commitment is not None:
            raise ConfigError(
                f"cannot sign with '{old_key}': its identity has a recovery key, and only that can "
                "name a successor; give --recovery FILE"
            )
    else:
        raise ConfigError(
            "cannot create a succession: give either --recovery, or --old-key for an identity "
            "without a recovery key"
        )
    if signer.node_id == successor.node_id:
        raise ConfigError(
            f"cannot name '{new_key}' as the successor: it is the key of the old identity; create "
            "another one with: parley id new KEY --recovery FILE"
        )
    statement = create_succession(signer, successor)
    save_statement(statement_path, statement)
    out = Output(as_json)
    accept = ""
    if not statement.by_recovery:
        accept = (
            "; because the primary key signed it, each operator must also accept it: parley peers "
            f"accept {statement.origin} --as {successor.node_id}"
        )
    out.remark(
        f"give {statement_path} to the new node and to your peers, who run: parley peers apply "
        f"{statement_path}{accept}"
    )
    _show(out, statement_path, statement)


def revoke(
    path: Path | None,
    recovery: Path | None,
    statement_path: Path,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    passphrase = read_passphrase(passphrase_file)
    signer: RecoveryKey | Identity
    if recovery is None:
        signer = load_identity(path or existing_default_key("revoke"), passphrase)
    elif path is None:
        signer = load_recovery(recovery, passphrase)
    else:
        raise ConfigError(f"cannot revoke '{path}': give either a key file or --recovery")
    statement = create_revocation(signer)
    save_statement(statement_path, statement)
    out = Output(as_json)
    out.remark(
        f"keep {statement_path} secret until you need it: whoever has it can end this identity; "
        f"then give it to your peers, who run: parley peers apply {statement_path}"
    )
    _show(out, statement_path, statement)


def id_lines(out: Output, statement: Statement) -> list[str]:
    """Return the lines that show the node IDs of a statement, with their petnames and words."""
    lines = [
        f"ends        {out.petnames.beside(statement.origin)}",
        f"words       {fingerprint(statement.origin)}",
    ]
    if statement.successor is not None:
        lines += [
            f"successor   {out.petnames.beside(statement.successor)}",
            f"words       {fingerprint(statement.successor)}",
        ]
    return lines


def fields_of(statement: Statement) -> dict[str, Any]:
    """Return the fields of a statement in JSON."""
    successor = statement.successor
    return {
        "kind": statement.kind,
        "origin": str(statement.origin),
        "origin_words": fingerprint(statement.origin),
        "successor": None if successor is None else str(successor),
        "successor_words": None if successor is None else fingerprint(successor),
        "by_recovery": statement.by_recovery,
        "made_ms": statement.made_ms,
    }


def _show(out: Output, path: Path, statement: Statement) -> None:
    for line in id_lines(out, statement):
        out.print(line)
    out.print(f"signed by   the {'recovery' if statement.by_recovery else 'primary'} key")
    out.print(f"statement   {path}")
    out.done(path=str(path), **fields_of(statement))
