"""`parley bus`: its commands."""

import typer

from node.cli.bus import dead
from node.cli.bus.consuming import consume
from node.cli.bus.keeping import replay, trim
from node.cli.bus.looking import groups, lag
from node.cli.bus.publishing import publish
from node.cli.bus.tailing import tail

app = typer.Typer(
    help="Publish and consume events of a durable bus; look after it.", no_args_is_help=True
)
app.command("publish")(publish)
app.command("consume")(consume)
app.command("tail")(tail)
app.command("groups")(groups)
app.command("lag")(lag)
app.add_typer(dead.app, name="dlq")
app.command("replay")(replay)
app.command("trim")(trim)
