"""`parley journal keygen`, and reading the auditors' key files for other commands.

Private keys are never printed.
"""

from pathlib import Path

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.keyfile import load_auditor_key, save_auditor_key
from parley._node.cli.output import Output
from parley._node.cli.param_types import read_passphrase


def keygen(
    out: Path,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    passphrase = read_passphrase(passphrase_file)
    made = AuditorPrivateKey.create()
    save_auditor_key(out, made, passphrase)
    show_auditor_key(Output(as_json), out, made)


def show_auditor_key(out: Output, path: Path, shown: AuditorPrivateKey) -> None:
    out.print(shown.public.text)
    out.remark(f"wrote the private key to {path}; give the line above to nodes as --auditor")
    out.done(path=str(path), auditor=shown.public.text)


def read_auditor_keys(
    paths: list[Path] | None, passphrase_file: Path | None
) -> list[AuditorPrivateKey]:
    """Return the keys in these files; raises KeyFileError, FileError."""
    passphrase = read_passphrase(passphrase_file)
    return [load_auditor_key(path, passphrase) for path in paths or ()]
