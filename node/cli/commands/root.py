"""The command `parley`."""

from typing import Final

import click

from parley._node import VERSION
from parley._node.cli.commands.bus import BUS_COMMANDS
from parley._node.cli.commands.connect import (
    CALL,
    CHAT,
    FIND,
    PING,
    PUB,
    RECEIVE,
    SEND,
    SUB,
    TOPICS,
)
from parley._node.cli.commands.framework import flag, group
from parley._node.cli.commands.journal import JOURNAL_COMMANDS, PIPELINE_COMMANDS, SIMULATE
from parley._node.cli.commands.serve import CONSOLE_COMMAND, FEDERATION_COMMANDS, RUN, SERVE
from parley._node.cli.commands.setup import (
    COMPLETION,
    CONTEXT_COMMANDS,
    ERRORS,
    ID_COMMANDS,
    PEERS_COMMANDS,
)
from parley._node.cli.commands.try_it import DEMO, DEMO_RESPONDER, DEMO_SERVER, DOCTOR

PROGRAM: Final = "parley"


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(VERSION)
        ctx.exit()


PARLEY: Final = group(
    PROGRAM,
    "Run and use nodes for secure peer-to-peer messaging.\n\nTo begin, run `parley demo`. "
    "`parley COMMAND --help` explains a command.",
    sections={
        "Try": (DEMO, DOCTOR, DEMO_RESPONDER, DEMO_SERVER),
        "Connect": (CALL, SUB, PUB, PING, CHAT, SEND, RECEIVE, TOPICS, FIND),
        "Serve": (SERVE, RUN, CONSOLE_COMMAND, FEDERATION_COMMANDS),
        "Data": (BUS_COMMANDS, JOURNAL_COMMANDS, PIPELINE_COMMANDS, SIMULATE),
        "Set up": (ID_COMMANDS, PEERS_COMMANDS, CONTEXT_COMMANDS, COMPLETION, ERRORS),
    },
    examples=(
        "parley demo",
        "parley serve --identity bob.key --listen tcp://127.0.0.1:4747",
        "parley call tcp://127.0.0.1:4747 parley.echo hello",
    ),
    params=[
        flag(
            "--version",
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version.",
        )
    ],
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    moved={"relay": "parley serve --relay", "accounts": "parley peers --accounts"},
)
