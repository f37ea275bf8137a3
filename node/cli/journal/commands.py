"""`parley journal`: its commands."""

import typer

from node.cli.journal.inspecting import inspect
from node.cli.journal.keygen import key, keygen

app = typer.Typer(
    help="Make an auditor's keys; look at, check, export and prune journals.",
    no_args_is_help=True,
)
app.command("keygen")(keygen)
app.command("key")(key)
app.command("inspect")(inspect)
