"""The access log of `parley serve` and `parley run`: its options."""

from typing import Annotated

import typer

AccessLog = Annotated[
    bool | None,
    typer.Option(
        "--access-log/--no-access-log",
        help="Log connections and refused requests, whatever the level. Default: not below it.",
    ),
]

LogRequests = Annotated[
    bool | None,
    typer.Option(
        "--log-requests/--no-log-requests",
        help="Log each answered request with its duration, too, whatever the level. Default: not.",
    ),
]
