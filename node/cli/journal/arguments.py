"""Arguments and options that several commands of `parley journal` take, each declared once."""

from pathlib import Path
from typing import Annotated

import typer

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.auditor_file import load_auditor_key
from parley._node.cli.given_files import read_passphrase

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Where the segments are.")]
NodeOption = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="ID",
        help="Only this node's: its id, or the beginning of it. Default: all in DIR.",
    ),
]
AuditorKeys = Annotated[
    list[Path] | None,
    typer.Option(
        "--auditor-key",
        metavar="FILE",
        help="An auditor's key file, as keygen writes it; repeatable. Without one nothing is "
        "decrypted.",
    ),
]
KeyPassphrase = Annotated[
    Path | None, typer.Option(help="File with the passphrase of the auditors' key files.")
]


def read_auditor_keys(
    paths: list[Path] | None, passphrase_file: Path | None
) -> list[AuditorPrivateKey]:
    """The keys in these files; raises KeyFileError, FileError."""
    passphrase = read_passphrase(passphrase_file)
    return [load_auditor_key(path, passphrase) for path in paths or ()]
