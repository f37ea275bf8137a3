"""Commands of the section "Connect"."""

from typing import Final

import click

from parley._node.cli.commands.framework import (
    PATH,
    Number,
    argument,
    command,
    flag,
    option,
)
from parley._node.cli.commands.shared import (
    ADDRESS,
    JSON,
    LISTEN,
    TIMEOUT,
    node_command,
)

HOME: Final = option(
    "--home",
    metavar="ADDR",
    section="Short codes",
    help="Connect through this server (an address or @NAME), at which both sides have an account.",
)

CALL: Final = node_command(
    "call",
    "call:call",
    "Make a call to a node and print the response.",
    ADDRESS,
    argument(
        "topic", "TOPIC", completes="completion.offered_names:calls", help="Name of the call."
    ),
    argument(
        "data", "DATA", required=False, help="Data as text, or - for bytes from standard input."
    ),
    option("--data-json", help="Data as JSON."),
    option("--timeout", type=Number(), default=30.0, help="Seconds to wait for the response."),
    flag(
        "--raw",
        help="Print only the bytes of the response: byte strings unchanged, text as UTF-8, other "
        "values as JSON, without a newline.",
    ),
    examples=(
        "parley call tcp://127.0.0.1:4747 parley.echo hello",
        "parley call tcp://127.0.0.1:4747 shop.buy --data-json '{\"apples\": 3}' --json",
    ),
)

SUB: Final = node_command(
    "sub",
    "sub:sub",
    "Subscribe to a topic and print its notes until the publisher ends the topic.",
    ADDRESS,
    argument(
        "topic", "TOPIC", completes="completion.offered_names:topics", help="Name of the topic."
    ),
    option(
        "--count", type=click.IntRange(min=1), help="Exit after this many notes. Default: never."
    ),
    option("--data", help="Data for the publisher, as text."),
    option("--data-json", help="Data for the publisher, as JSON."),
    option(
        "--give-up-after",
        metavar="SECONDS",
        type=Number(min=0.0),
        help="How long to wait for a lost connection; 0 exits immediately. Default: forever.",
    ),
    examples=("parley sub tcp://127.0.0.1:4747 parley.clock --count 3",),
)

PUB: Final = node_command(
    "pub",
    "pub:pub",
    "Publish each line of standard input; exit once every subscriber has received all lines.",
    argument("topic", "TOPIC", help="Name of the topic."),
    LISTEN,
    option(
        "--wait",
        type=click.IntRange(min=0),
        default=0,
        help="Wait for this many subscribers before reading.",
    ),
    flag("--json-lines", help="Parse each line as JSON."),
    option(
        "--slow",
        type=click.Choice(["unsubscribe", "drop-oldest"]),
        default="unsubscribe",
        help="What a slow subscriber loses: its subscription or its oldest notes.",
    ),
    option(
        "--buffer",
        type=click.IntRange(min=1024),
        default=1048576,
        help="Bytes to buffer for each subscriber; a note counts its length plus 64.",
    ),
    option(
        "--patience",
        type=Number(min=0.0),
        default=10.0,
        help="Seconds to wait for a slow subscriber before it loses notes or its subscription.",
    ),
    option(
        "--keep",
        type=click.IntRange(min=1),
        help="Number of notes to keep for later subscribers; at most 16 MiB in total.",
    ),
    options_class="pub:PubOptions",
    examples=("tail -f log | parley pub log.lines --listen tcp://127.0.0.1:4747 --wait 1",),
)

PING: Final = node_command(
    "ping",
    "ping:ping",
    "Measure the round-trip time to a node, or monitor the connection with --watch.",
    ADDRESS,
    option(
        "--count",
        "-c",
        type=click.IntRange(min=1),
        help="Number of pings. Default: 4, with --watch unlimited.",
    ),
    option(
        "--interval",
        type=Number(min=0.0),
        help="Seconds between pings. Default: 0.2, with --watch 1.",
    ),
    flag("--watch", help="Keep the connection open and show losses and reconnects."),
    examples=(
        "parley ping tcp://127.0.0.1:4747",
        "parley ping tcp://127.0.0.1:4747 --watch",
    ),
)

CHAT: Final = node_command(
    "chat",
    "chat:chat",
    "Chat: host a room with --listen, or join one at ADDR.",
    argument(
        "address",
        "ADDR",
        required=False,
        completes="completion.suggestions:places",
        help="The host: tcp://host:port or unix:///path, preferably followed by #NODEID; or @NAME "
        "of a context or a known peer.",
    ),
    option(
        "--listen",
        multiple=True,
        help="Host a room at tcp://host:port or unix:///path; repeatable.",
    ),
    option("--name", help="Your name. Default: the login name."),
    option("--room", default="lobby", help="Name of the room to host or join."),
    examples=(
        "parley chat --listen tcp://127.0.0.1:4747 --name alice",
        "parley chat tcp://127.0.0.1:4747 --name bob",
    ),
)

SEND: Final = node_command(
    "send",
    "transfer.send:send",
    "Send files to `parley receive`. Rerun the command to resume an interrupted "
    "transfer.\n\nWithout ADDR, show a code to enter on the other machine with `parley receive "
    "CODE`.",
    argument(
        "files_and_address",
        "FILE... [ADDR]",
        nargs=-1,
        help="Files, then optionally the receiver: tcp://host:port or unix:///path, preferably "
        "followed by #NODEID, or @NAME.",
    ),
    option(
        "--retries",
        type=click.IntRange(min=0, max=1000),
        default=8,
        help="Give up after this many consecutive failed connects or transfers; the delay "
        "between them grows from 0.5 s to 30 s.",
    ),
    option(
        "--parallel",
        type=click.IntRange(min=1, max=4),
        default=1,
        help="Number of files to transfer at once.",
    ),
    HOME,
    option(
        "--listen",
        multiple=True,
        section="Short codes",
        help="Wait for the receiver at tcp://host:port or unix:///path; repeatable. Default: "
        "tcp://0.0.0.0:0 without --home.",
    ),
    option(
        "--announce/--no-announce",
        "announced",
        default=None,
        section="Short codes",
        help="Announce the code's number on the local network. Default: yes if the `discovery` "
        "extra is installed and --home is not given.",
    ),
    examples=(
        "parley send photo.jpg",
        "parley send photo.jpg film.mp4 tcp://127.0.0.1:4747",
    ),
)

RECEIVE: Final = node_command(
    "receive",
    "transfer.receive:receive",
    "Receive files sent with `parley send` until SIGINT or SIGTERM.\n\nWith the CODE that the "
    "sender shows, receive all files of that sender and exit.",
    argument(
        "what", "DIR|CODE", help="Directory for the files, or the code that the sender shows."
    ),
    argument(
        "directory",
        "[DIR]",
        type=PATH,
        required=False,
        help="With CODE: directory for the files. Default: the current directory.",
    ),
    LISTEN,
    option(
        "--at",
        metavar="ADDR",
        section="Short codes",
        help="Address of the sender: tcp://host:port, unix:///path or @NAME.",
    ),
    HOME,
    flag("--yes", help="Accept files from unknown senders without asking."),
    flag("--force", help="Overwrite existing files."),
    flag("--once", help="Same as --count 1."),
    option(
        "--count", type=click.IntRange(min=1), help="Exit after this many files. Default: never."
    ),
    option(
        "--max-size",
        type=click.IntRange(min=0),
        help="Largest accepted file in bytes. Default: the free disk space.",
    ),
    option(
        "--parallel",
        type=click.IntRange(min=1, max=64),
        default=8,
        help="Number of files to transfer at once.",
    ),
    options_class="transfer.receive:ReceiveOptions",
    examples=(
        "parley receive 7-crossover-clockwork",
        "parley receive inbox --listen tcp://127.0.0.1:4747",
    ),
)

TOPICS: Final = node_command(
    "topics",
    "topics:topics",
    "List the calls, topics and streams that a node offers you, with types and descriptions.",
    ADDRESS,
    argument("prefix", "PREFIX", default="", help="List only names with this prefix."),
    flag("--schema", help="Print one JSON Schema document instead of a list."),
    TIMEOUT,
    examples=(
        "parley topics tcp://127.0.0.1:4747",
        "parley topics tcp://127.0.0.1:4747 shop. --schema",
    ),
)

FIND: Final = command(
    "find",
    "find:find",
    "List the nodes announced on the local network (requires the `discovery` "
    "extra).\n\nAnnouncements are not verified: a node proves its ID only when you connect to it.",
    option("--seconds", type=Number(), default=3.0, help="Seconds to search."),
    option(
        "--interface",
        metavar="IP",
        multiple=True,
        help="Search only on the interface with this IPv4 address; repeatable.",
    ),
    JSON,
    examples=("parley find --seconds 5",),
)
