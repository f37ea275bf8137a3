"""`parley pipeline`: its commands."""

import typer

from node.cli.pipeline.following import follow
from node.cli.pipeline.reporting import report
from node.cli.pipeline.running import run

app = typer.Typer(
    help="From journals to tables and a report, on Apache Spark.", no_args_is_help=True
)
app.command("run")(run)
app.command("follow")(follow)
app.command("report")(report)
