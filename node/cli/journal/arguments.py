"""Keys of auditors that commands of `parley journal` are given."""

from pathlib import Path

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.keyfile import load_auditor_key
from parley._node.cli.given_files import read_passphrase


def read_auditor_keys(
    paths: list[Path] | None, passphrase_file: Path | None
) -> list[AuditorPrivateKey]:
    """The keys in these files; raises KeyFileError, FileError."""
    passphrase = read_passphrase(passphrase_file)
    return [load_auditor_key(path, passphrase) for path in paths or ()]
