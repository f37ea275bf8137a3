"""`parley id`: create and show key files."""

from pathlib import Path

from parley._crypto.identity import Identity
from parley._crypto.keyfile import (
    describe_keyfile,
    is_auditor_file,
    load_auditor_key,
    load_identity,
    save_identity,
)
from parley._node.cli.default_identity import create_default_key, default_key_path
from parley._node.cli.journal.keys import show_auditor_key
from parley._node.cli.output import Output
from parley._node.cli.param_types import parse_names, read_passphrase
from parley._node.errors import FileError
from parley._node.trust.petnames import fingerprint


def new(
    path: Path | None,
    algorithm: str,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    names = parse_names("signing", algorithm, option="algorithm")
    passphrase = read_passphrase(passphrase_file)
    identity = Identity.create(names)
    if path is None:
        path = default_key_path()
        create_default_key(path, identity, passphrase)
    else:
        save_identity(path, identity, passphrase)
    _show(Output(as_json), path, identity, passphrase is not None)


def show(path: Path | None, passphrase_file: Path | None, as_json: bool) -> None:
    if path is not None and is_auditor_file(path):
        show_auditor_key(
            Output(as_json), path, load_auditor_key(path, read_passphrase(passphrase_file))
        )
        return
    if path is None:
        path = default_key_path()
        if not path.exists():
            raise FileError(
                f"cannot show your key '{path}': it does not exist yet; create it with: parley "
                "id new"
            )
    encrypted = describe_keyfile(path)
    identity = load_identity(path, read_passphrase(passphrase_file))
    _show(Output(as_json), path, identity, encrypted)


def _show(out: Output, path: Path, identity: Identity, encrypted: bool) -> None:
    node_id = identity.node_id
    out.print(f"node ID     {node_id}")
    out.print(f"words       {fingerprint(node_id)}")
    out.print(f"uuid        {node_id.uuid}")
    out.print(f"algorithms  {', '.join(identity.algorithms)}")
    out.print(f"key file    {path} ({'with' if encrypted else 'without'} passphrase)")
    out.done(
        path=str(path),
        node_id=str(node_id),
        words=fingerprint(node_id),
        uuid=str(node_id.uuid),
        algorithms=list(identity.algorithms),
        public_keys={key.algorithm: key.public.hex() for key in identity.keys},
        encrypted=encrypted,
    )
