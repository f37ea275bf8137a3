"""`parley journal keygen`: make an auditor's key pair.

Only the public key is ever printed.
"""

from pathlib import Path

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.keyfile import save_auditor_key
from parley._node.cli.given_files import read_passphrase
from parley._node.cli.output import Output


def keygen(
    out: Path,
    passphrase_file: Path | None,
    as_json: bool,
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
