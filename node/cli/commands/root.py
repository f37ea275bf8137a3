"""The command `parley`."""

from typing import Final

import click

from parley._node import VERSION
from parley._node.cli.commands.bus import BUS_COMMANDS
from parley._node.cli.commands.declare import flag, group
from parley._node.cli.commands.journals import JOURNAL_COMMANDS, PIPELINE_COMMANDS, SIMULATE
from parley._node.cli.commands.nodes import (
    CALL,
    CONSOLE_COMMAND,
    FEDERATION_COMMANDS,
    FIND,
    PING,
    PUB,
    RUN,
    SERVE,
    SUB,
    TOPICS,
)
from parley._node.cli.commands.setup import CONTEXT_COMMANDS, ID_COMMANDS, PEERS_COMMANDS
from parley._node.cli.commands.talk import CHAT, RECEIVE, SEND
from parley._node.cli.commands.tools import (
    COMPLETION,
    DEMO,
    DEMO_RESPONDER,
    DEMO_SERVER,
    DOCTOR,
    ERRORS,
)

PROGRAM: Final = "parley"


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(VERSION)
        ctx.exit()


PARLEY: Final = group(
    PROGRAM,
    "A secure peer-to-peer messaging node.",
    ID_COMMANDS,
    SERVE,
    RUN,
    CONSOLE_COMMAND,
    FIND,
    CALL,
    TOPICS,
    PING,
    SUB,
    PUB,
    CHAT,
    SEND,
    RECEIVE,
    DEMO,
    SIMULATE,
    BUS_COMMANDS,
    JOURNAL_COMMANDS,
    PIPELINE_COMMANDS,
    PEERS_COMMANDS,
    CONTEXT_COMMANDS,
    FEDERATION_COMMANDS,
    DOCTOR,
    COMPLETION,
    ERRORS,
    DEMO_RESPONDER,
    DEMO_SERVER,
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
