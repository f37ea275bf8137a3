"""`parley journal`: its commands."""

import typer

from node.cli.journal.exporting import export
from node.cli.journal.inspecting import inspect
from node.cli.journal.keygen import key, keygen
from node.cli.journal.pruning import prune
from node.cli.journal.verifying import verify

app = typer.Typer(
    help="Make an auditor's keys; look at, check, export and prune journals.",
    no_args_is_help=True,
)
app.command("keygen")(keygen)
app.command("key")(key)
app.command("inspect")(inspect)
app.command("verify")(verify)
app.command("export")(export)
app.command("prune")(prune)
