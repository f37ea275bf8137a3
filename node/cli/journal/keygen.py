"""`parley journal keygen`: make an auditor's key pair.

Only the public key is ever printed.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.auditor_file import save_auditor_key
from parley._node.cli.given_files import file_path, read_passphrase
from parley._node.cli.options import Json, PassphraseFile
from parley._node.cli.output import Output

DEFAULT_PATH: Final = Path("auditor.key")


def keygen(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="Where the private key goes.", parser=file_path),
    ] = DEFAULT_PATH,
    passphrase_file: PassphraseFile = None,
    as_json: Json = False,
) -> None:
    """Make an auditor's key pair: a private key file, and the public key that nodes are told."""
    passphrase = read_passphrase(passphrase_file)
    made = AuditorPrivateKey.create()
    save_auditor_key(out, made, passphrase)
    show_auditor_key(Output(as_json), out, made)


def show_auditor_key(out: Output, path: Path, shown: AuditorPrivateKey) -> None:
    """Print the public key of an auditor's key file."""
    out.say(shown.public.text)
    out.remark(f"the private key is in {path}; nodes take the line above (--auditor)")
    out.done(path=str(path), auditor=shown.public.text)
