"""Commands by which people talk and send files."""

from typing import Final

import click

from parley._node.cli.commands.declare import PATH, argument, flag, option
from parley._node.cli.commands.shared import (
    LISTEN,
    node_command,
)

HOME: Final = option(
    "--home",
    metavar="ADDR",
    section="Short codes",
    help="A server at which both have an account; they meet through it. Or @NAME.",
)

CHAT: Final = node_command(
    "chat",
    "chat:chat",
    "Talk with others: --listen hosts a room, ADDR goes to one.",
    argument(
        "address",
        "ADDR",
        required=False,
        completes="completion.suggestions:places",
        help="Of the host: tcp://host:port or unix:///path, best with #NODEID after it; or "
        "@NAME of a context or a known peer.",
    ),
    option(
        "--listen",
        multiple=True,
        help="Host a room at tcp://host:port or unix:///path; repeatable.",
    ),
    option("--name", help="Yours. Default: the login name."),
    option("--room", default="lobby", help="The room's name."),
    examples=(
        "parley chat --listen tcp://127.0.0.1:4747 --name alice",
        "parley chat tcp://127.0.0.1:4747 --name bob",
    ),
)

SEND: Final = node_command(
    "send",
    "transfer.send:send",
    "Send files to `parley receive`; run it again to go on after a cut.\n\nWithout ADDR a code "
    "is shown, for `parley receive CODE` on the other machine.",
    argument(
        "files_and_address",
        "FILE... [ADDR]",
        nargs=-1,
        help="Files, then tcp://host:port or unix:///path, best with #NODEID after it, or "
        "@NAME; without one a code is shown.",
    ),
    option(
        "--retries",
        type=click.IntRange(min=0, max=1000),
        default=8,
        help="Dials in a row that may fail after a connection was lost, and tries in a row "
        "that may send nothing; pauses grow from 0.5 s to 30 s.",
    ),
    option(
        "--parallel", type=click.IntRange(min=1, max=4), default=1, help="Files at the same time."
    ),
    HOME,
    option(
        "--listen",
        multiple=True,
        section="Short codes",
        help="Where to wait: tcp://host:port or unix:///path; repeatable. Default: "
        "tcp://0.0.0.0:0 without --home.",
    ),
    option(
        "--announce/--no-announce",
        "announced",
        default=None,
        section="Short codes",
        help="Be found on the local network by the code's number. Default: if the extra "
        "`discovery` is installed, and without --home.",
    ),
    examples=(
        "parley send photo.jpg",
        "parley send photo.jpg film.mp4 tcp://127.0.0.1:4747",
    ),
)

RECEIVE: Final = node_command(
    "receive",
    "transfer.receive:receive",
    "Take files from `parley send` into a directory, until SIGINT or SIGTERM.\n\nWith the CODE "
    "that `send` shows, from that one sender, until it has said all.",
    argument("what", "DIR|CODE", help="Where files are put; or the code that the sender shows."),
    argument(
        "directory",
        "[DIR]",
        type=PATH,
        required=False,
        help="With CODE: where files are put. Default: here.",
    ),
    LISTEN,
    option(
        "--at",
        metavar="ADDR",
        section="Short codes",
        help="Where the sender waits: tcp://host:port, unix:///path or @NAME.",
    ),
    HOME,
    flag("--yes", help="Take files from somebody new without asking."),
    flag("--force", help="Let a file replace another of its name."),
    flag("--once", help="The same as --count 1."),
    option(
        "--count", type=click.IntRange(min=1), help="End after this many files; default: never."
    ),
    option(
        "--max-size",
        type=click.IntRange(min=0),
        help="Largest file taken, bytes; default: what the disk has room for.",
    ),
    option(
        "--parallel", type=click.IntRange(min=1, max=64), default=8, help="Files at the same time."
    ),
    examples=(
        "parley receive 7-crossover-clockwork",
        "parley receive inbox --listen tcp://127.0.0.1:4747",
    ),
)
