"""What the commands of `parley journal` are given: directories, nodes, keys, amounts.

One rule: an amount without a unit that is known is refused; nothing is guessed.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from crypto.auditor import AuditorPrivateKey
from crypto.auditor_file import load_auditor_key
from node.cli.options import read_passphrase
from node.errors import ConfigError

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

_AMOUNT: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)")
_SIZES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_TIMES: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def read_auditor_keys(
    paths: list[Path] | None, passphrase_file: Path | None
) -> list[AuditorPrivateKey]:
    """The keys in these files; raises KeyFileError, FileProblem."""
    passphrase = read_passphrase(passphrase_file)
    return [load_auditor_key(path, passphrase) for path in paths or ()]


def parse_size(text: str) -> int:
    """Bytes, of `10GB`, `512MiB` or the like; raises ConfigError."""
    return round(_parse(text, _SIZES, "a size, such as 500MB or 10GiB"))


def parse_duration(text: str) -> float:
    """Seconds, of `30d`, `12h` or the like; raises ConfigError."""
    return _parse(text, _TIMES, "a time, such as 30d, 12h or 90m")


def _parse(text: str, units: Mapping[str, int], what: str) -> float:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match["unit"] not in units:
        raise ConfigError(f"{text!r} is not {what}; the units are {', '.join(units)}")
    return float(match["number"]) * units[match["unit"]]
