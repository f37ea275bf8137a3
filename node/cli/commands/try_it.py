"""Commands of the section "Try": demo and doctor."""

from typing import Final

import click

from parley._node.cli.commands.framework import (
    PATH,
    argument,
    command,
    option,
)
from parley._node.cli.commands.shared import (
    JSON,
    LOOP,
    node_command,
)

DEMO: Final = command(
    "demo",
    "demo.command:demo",
    "Run a demo: two nodes connect, call, publish, chat, send a file and detect "
    "tampering.\n\n`parley demo federation` shows five servers instead, and `parley demo keys` a "
    "stolen key and its successor; write ./federation or ./keys for a file of that name.",
    argument(
        "what",
        "FILE",
        required=False,
        help="The file to send, `federation` or `keys`. Default: the README.",
    ),
    LOOP,
    JSON,
    examples=(
        "parley demo",
        "parley demo README.md",
        "parley demo federation",
        "parley demo keys",
    ),
)

DOCTOR: Final = node_command(
    "doctor",
    "doctor.command:doctor",
    "Find problems and weaknesses of this machine, and of the connection to ADDR. Exits with 1 "
    "on a problem.",
    argument(
        "address",
        "ADDR",
        required=False,
        completes="completion.suggestions:places",
        help="Check the connection to this node.",
    ),
    option(
        "--count", type=click.IntRange(min=1), default=5, help="Number of round trips to measure."
    ),
    option(
        "--config",
        type=PATH,
        help="Check the dialects, journal and bus in this TOML file with settings.",
    ),
    option(
        "--dialect",
        metavar="ADDR",
        multiple=True,
        help="Check this address of another dialect; repeatable.",
    ),
    option(
        "--bus",
        metavar="URL",
        multiple=True,
        completes="completion.suggestions:bus_files",
        help="Check the file of this bus, and who can access it; repeatable.",
    ),
    examples=(
        "parley doctor",
        "parley doctor tcp://127.0.0.1:4747 --config parley.toml",
    ),
)

DEMO_RESPONDER: Final = command(
    "demo-responder",
    "demo.command:demo_responder",
    "The other process of the demo.",
    LOOP,
    hidden=True,
)

DEMO_SERVER: Final = command(
    "demo-server",
    "demo.command:demo_server",
    "A server of `parley demo federation`.",
    LOOP,
    hidden=True,
)
