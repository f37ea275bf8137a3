"""`parley run`: serves an application's node, as `parley serve` does its own, until a signal comes;
with `--reload` it is started anew whenever its files change."""

from pathlib import Path

from parley._node.cli.options import NodeOptions
from parley._node.cli.serve.application import Application
from parley._node.cli.serve.command import serve_by, serve_told
from parley._node.cli.serve.journal import journal_told
from parley._node.settings import Settings, load_settings


def run_application(
    options: NodeOptions,
    target: str,
    listen: list[str] | None,
    config: Path | None,
    app_dir: Path,
    reload: bool,
    reload_dir: list[Path] | None,
    tells: bool,
    announce: bool | None,
    announce_name: str | None,
    journal: Path | None,
    auditor: list[str] | None,
    journal_fsync: str | None,
    journal_on_failure: str | None,
    metrics: str | None,
    console: str | None,
    access_log: bool | None,
    log_requests: bool | None,
) -> None:
    """Serve the node of a module, or one that its function is given, until SIGINT or SIGTERM.

    SIGHUP has the settings read again.
    """
    if reload:
        from parley._node.cli.application.reload import keep_running

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
