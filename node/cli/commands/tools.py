"""Commands that explain, examine and demonstrate."""

from typing import Final

import click

from parley._node.cli.commands.declare import PATH, argument, command, option
from parley._node.cli.commands.shared import (
    JSON,
    LOOP,
    node_command,
)

DEMO: Final = command(
    "demo",
    "demo.command:demo",
    "Show nodes that meet, call, publish, chat, send a file, and are not fooled; or five "
    "servers of a federation, in as many processes. (A file of that name is `./federation`.)",
    argument(
        "what", "FILE", required=False, help="What to send, by default the README; or `federation`."
    ),
    LOOP,
    JSON,
    examples=(
        "parley demo",
        "parley demo README.md",
        "parley demo federation",
    ),
)

DOCTOR: Final = node_command(
    "doctor",
    "doctor.command:doctor",
    "Look for what is wrong or weak here, and with a node; exit 1 if there is a problem.",
    argument(
        "address",
        "ADDR",
        required=False,
        completes="completion.suggestions:places",
        help="Also look at the connection to this node.",
    ),
    option("--count", type=click.IntRange(min=1), default=5, help="Round trips to measure."),
    option(
        "--config",
        type=PATH,
        help="TOML file with settings, of which it looks at other dialects, journal and bus.",
    ),
    option(
        "--dialect",
        metavar="ADDR",
        multiple=True,
        help="Also look at this address, where another dialect is spoken; repeatable.",
    ),
    option(
        "--bus",
        metavar="URL",
        multiple=True,
        completes="completion.suggestions:bus_files",
        help="Also check who can reach the store of this bus, and its file; repeatable.",
    ),
    examples=(
        "parley doctor",
        "parley doctor tcp://127.0.0.1:4747 --config parley.toml",
    ),
)

COMPLETION: Final = command(
    "completion",
    "completion.scripts:completion",
    "Print the script that completes parley's commands; `source` it from the shell's start.",
    argument(
        "shell", "SHELL", type=click.Choice(["bash", "zsh", "fish"]), help="bash, zsh or fish."
    ),
    examples=("parley completion bash > ~/.parley-completion",),
)

ERRORS: Final = command(
    "errors",
    "error_catalogue:errors",
    "Explain close codes, result codes, those of other dialects, and exit codes.",
    argument(
        "code",
        "CODE",
        required=False,
        completes="error_catalogue:names",
        help="A number or name, such as 17 or deadline-exceeded; without one, all.",
    ),
    JSON,
    examples=(
        "parley errors deadline-exceeded",
        "parley errors 17",
    ),
    context_settings={"ignore_unknown_options": True},
)

DEMO_RESPONDER: Final = command(
    "demo-responder",
    "demo.command:demo_responder",
    "The demo's other process.",
    LOOP,
    hidden=True,
)

DEMO_SERVER: Final = command(
    "demo-server",
    "demo.command:demo_server",
    "A server of the federation that the demo shows.",
    LOOP,
    hidden=True,
)
