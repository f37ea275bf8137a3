"""`parley id`: making and showing identities."""

from pathlib import Path
from typing import Annotated

import typer

from crypto.identity import Identity
from crypto.keyfile import describe_keyfile, load_identity, save_identity
from node.cli.options import Json, PassphraseFile, file_path, parse_names, read_passphrase
from node.cli.output import Output
from node.cli.suggestions import algorithms

KeyPath = Annotated[Path, typer.Argument(metavar="PATH", help="The key file.", parser=file_path)]


def new(
    path: KeyPath,
    algorithm: Annotated[
        str,
        typer.Option(
            help="Comma list; the first key gives the node id.",
            autocompletion=algorithms("signing"),
        ),
    ] = "ed25519",
    passphrase_file: PassphraseFile = None,
    as_json: Json = False,
) -> None:
    """Make an identity and write its key file, readable by its owner only."""
    names = parse_names("signing", algorithm)
    passphrase = read_passphrase(passphrase_file)
    identity = Identity.create(names)
    save_identity(path, identity, passphrase)
    _show(Output(as_json), path, identity, passphrase is not None)


def show(path: KeyPath, passphrase_file: PassphraseFile = None, as_json: Json = False) -> None:
    """Show whose key file it is."""
    encrypted = describe_keyfile(path)
    identity = load_identity(path, read_passphrase(passphrase_file))
    _show(Output(as_json), path, identity, encrypted)


def _show(out: Output, path: Path, identity: Identity, encrypted: bool) -> None:
    node_id = identity.node_id
    out.say(f"node id     {node_id}")
    out.say(f"uuid        {node_id.uuid}")
    out.say(f"algorithms  {', '.join(identity.algorithms)}")
    out.say(f"key file    {path} ({'with' if encrypted else 'without'} passphrase)")
    out.done(
        path=str(path),
        node_id=str(node_id),
        uuid=str(node_id.uuid),
        algorithms=list(identity.algorithms),
        public_keys={key.algorithm: key.public.hex() for key in identity.keys},
        encrypted=encrypted,
    )
