"""`parley run`: serves an application's node, as `parley serve` does its own, until a signal comes;
with `--reload` it is started anew whenever its files change."""

from pathlib import Path
from typing import Annotated

import typer

from parley._node.cli.options import Listen, NodeOptions, takes_node_options
from parley._node.cli.serve.access_log import AccessLog, LogRequests
from parley._node.cli.serve.announcing import Announce, AnnounceName
from parley._node.cli.serve.application import Application
from parley._node.cli.serve.command import ConfigOption, serve_by, serve_told
from parley._node.cli.serve.console import ConsoleAddress
from parley._node.cli.serve.journal import (
    Auditors,
    Fsync,
    JournalDirectory,
    OnFailure,
    journal_told,
)
from parley._node.cli.serve.metrics import MetricsAddress
from parley._node.errors import ConfigError
from parley._node.logs import needs_extra
from parley._node.settings import Settings, load_settings

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE[:NAME]",
        help="A Node, or a function that is given one. Without NAME: node, or else app.",
    ),
]
AppDirectory = Annotated[
    Path, typer.Option("--app-dir", help="Where modules are looked for first.", show_default="here")
]
Reload = Annotated[
    bool, typer.Option("--reload", help="Start anew when a file has changed, while you write it.")
]
ReloadDirectories = Annotated[
    list[Path] | None,
    typer.Option(
        "--reload-dir", help="Look for changes there; repeatable. Default: that of --app-dir."
    ),
]
Tells = Annotated[
    bool,
    typer.Option(
        "--topics/--no-topics",
        help="Whether peers may ask what is offered to them (`parley topics`).",
    ),
]


@takes_node_options
def run_application(
    options: NodeOptions,
    target: Target,
    listen: Listen = None,
    config: ConfigOption = None,
    app_dir: AppDirectory = Path(),
    reload: Reload = False,
    reload_dir: ReloadDirectories = None,
    tells: Tells = True,
    announce: Announce = None,
    announce_name: AnnounceName = None,
    journal: JournalDirectory = None,
    auditor: Auditors = None,
    journal_fsync: Fsync = None,
    journal_on_failure: OnFailure = None,
    metrics: MetricsAddress = None,
    console: ConsoleAddress = None,
    access_log: AccessLog = None,
    log_requests: LogRequests = None,
) -> None:
    """Serve the node of a module, or one that its function is given, until SIGINT or SIGTERM.

    SIGHUP has the settings read again.
    """
    if reload:
        try:
            from parley._node.cli.application.reload import keep_running
        except ImportError as error:
            raise ConfigError(needs_extra("--reload", "reload")) from error
        keep_running(options, reload_dir or [app_dir], [config] if config else [])
        return
    application = Application(target, app_dir, tells=tells)

    def read() -> Settings:
        return load_settings(
            config,
            options=serve_told(
                listen, announce, announce_name, console, metrics, access_log, log_requests
            )
            | journal_told(journal, auditor, journal_fsync, journal_on_failure),
        )

    serve_by(read, options, application)
