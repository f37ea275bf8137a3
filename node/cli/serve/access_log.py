"""The access log of `parley serve` and `parley run`: its option."""

from typing import Annotated

import typer

AccessLog = Annotated[
    bool | None,
    typer.Option(
        "--access-log/--no-access-log",
        help="Log connections and refused requests, whatever the level. Default: not below it.",
    ),
]
