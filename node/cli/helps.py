"""What each command is for, in one sentence, and examples of it.

The sentences are those of the commands' functions, which would have to be imported for them: a list
of commands is shown without that. Tests hold them to the functions, and the examples to the options
that there are.
"""

from typing import Final, NamedTuple


class Help(NamedTuple):
    """A command's sentence, and lines that a shell would take."""

    help: str
    examples: tuple[str, ...]


# Whose examples stand below the list of all commands; a family's are those of its first ones.
_FIRST: Final = ("demo", "serve", "call")


def epilog(path: str) -> str | None:
    """What stands at the end of a command's help: its examples; None without one."""
    examples = _examples(path)
    if not examples:
        return None
    shown = "\n".join(f"  {line}" for line in examples).replace("[", r"\[")
    # One line each: a single end of a line is a blank there.
    return "For example:\n\n" + shown.replace("\n", "\n\n")


def _examples(path: str) -> tuple[str, ...]:
    """Its own, or the first one of each of a few commands below it."""
    own = HELPS[path].examples if path else ()
    below = _FIRST if not path else [name for name in HELPS if name.startswith(f"{path} ")]
    firsts = [HELPS[name].examples[:1] for name in below]
    return own or tuple(example for first in firsts for example in first)[: len(_FIRST)]


# A command's words, then what is said of it.
HELPS: Final[dict[str, Help]] = {
    "id": Help("Make and show identities.", ()),
    "id new": Help(
        "Make an identity and write its key file, readable by its owner only.",
        (
            "parley id new bob.key",
            "parley id new bob.key --algorithm ml-dsa-65,ed25519 --passphrase-file secret",
        ),
    ),
    "id show": Help(
        "Show the public part of a key file: a node's, by default your own, or an auditor's.",
        ("parley id show", "parley id show bob.key"),
    ),
    "serve": Help(
        "Listen, answer parley.echo and parley.info, publish parley.clock, "
        "until SIGINT or SIGTERM.",
        (
            "parley serve --identity bob.key --listen tcp://127.0.0.1:4747",
            "parley serve --config parley.toml",
        ),
    ),
    "run": Help(
        "Serve the node of a module, or one that its function is given, until SIGINT or SIGTERM.",
        (
            "parley run shop:app --listen tcp://127.0.0.1:4747",
            "parley run shop --config parley.toml --reload",
        ),
    ),
    "console": Help(
        "Print a link that opens the console of a server here once, within 10 minutes.",
        ("parley console", "parley console --act --port 7480"),
    ),
    "find": Help(
        "Show who is announced on the local network; takes the extra `discovery`.",
        ("parley find --seconds 5",),
    ),
    "call": Help(
        "Call a topic and print its answer.",
        (
            "parley call tcp://127.0.0.1:4747 parley.echo hello",
            """parley call tcp://127.0.0.1:4747 shop.buy --data-json '{"apples": 3}' --json""",
        ),
    ),
    "topics": Help(
        "Show what a node offers to you: names, kinds, types and what is said of them.",
        (
            "parley topics tcp://127.0.0.1:4747",
            "parley topics tcp://127.0.0.1:4747 shop. --schema",
        ),
    ),
    "ping": Help(
        "Measure the round trip to a node; with --watch, show a connection live.",
        ("parley ping tcp://127.0.0.1:4747", "parley ping tcp://127.0.0.1:4747 --watch"),
    ),
    "sub": Help(
        "Subscribe to a topic and print its notes, until the publisher ends it.",
        ("parley sub tcp://127.0.0.1:4747 parley.clock --count 3",),
    ),
    "pub": Help(
        "Publish each line of standard input as a note; end when subscribers have them all.",
        ("tail -f log | parley pub log.lines --listen tcp://127.0.0.1:4747 --wait 1",),
    ),
    "chat": Help(
        "Talk with others: --listen hosts a room, ADDR goes to one.",
        (
            "parley chat --listen tcp://127.0.0.1:4747 --name alice",
            "parley chat tcp://127.0.0.1:4747 --name bob",
        ),
    ),
    "send": Help(
        "Send files to `parley receive`; run it again to go on after a cut.",
        ("parley send photo.jpg", "parley send photo.jpg film.mp4 tcp://127.0.0.1:4747"),
    ),
    "receive": Help(
        "Take files from `parley send` into a directory, until SIGINT or SIGTERM.",
        (
            "parley receive 7-crossover-clockwork",
            "parley receive inbox --listen tcp://127.0.0.1:4747",
        ),
    ),
    "demo": Help(
        "Show nodes that meet, call, publish, chat, send a file, and are not fooled; or five "
        "servers of a federation, in as many processes. (A file of that name is `./federation`.)",
        ("parley demo", "parley demo README.md", "parley demo federation"),
    ),
    "simulate": Help(
        "Run nodes with made-up traffic in simulated time, and keep their journals.",
        ("parley simulate --nodes 4 --minutes 2 --journals journals",),
    ),
    "bus": Help("Publish and consume events of a durable bus; look after it.", ()),
    "bus publish": Help(
        "Publish an event, or many, and print the ids.",
        ("""parley bus publish sqlite:///bus.db auth.user_registered '{"username": "admin"}'""",),
    ),
    "bus consume": Help(
        "Take the events of a group and print them, or run a command for each.",
        ("parley bus consume sqlite:///bus.db auth.user_registered --group mailer",),
    ),
    "bus tail": Help(
        "Print the events that are stored, and with --follow those to come; takes no group.",
        ("parley bus tail sqlite:///bus.db auth.user_registered --start 2h",),
    ),
    "bus groups": Help(
        "Show the groups of an event, or all events and groups: lag, pending, dead letters.",
        (
            "parley bus groups sqlite:///bus.db",
            "parley bus groups sqlite:///bus.db auth.user_registered",
        ),
    ),
    "bus dlq": Help("Dead letters: list, replay or drop them.", ()),
    "bus dlq list": Help(
        "Show the dead letters of an event: which, of which group, and why.",
        ("parley bus dlq list sqlite:///bus.db auth.user_registered",),
    ),
    "bus dlq replay": Help(
        "Hand dead letters to the groups in which they died once more, with attempts anew.",
        ("parley bus dlq replay sqlite:///bus.db auth.user_registered --all",),
    ),
    "bus dlq drop": Help(
        "Forget dead letters; what is dropped cannot be replayed.",
        ("parley bus dlq drop sqlite:///bus.db auth.user_registered --all",),
    ),
    "bus replay": Help(
        "Have a group read an event's stream from another place on, be it back or forth.",
        ("parley bus replay sqlite:///bus.db auth.user_registered --group mailer --start 2h",),
    ),
    "bus trim": Help(
        "Throw the oldest events of a stream away, whether they were read or not.",
        ("parley bus trim sqlite:///bus.db auth.user_registered --max-age 7d",),
    ),
    "bus backup": Help(
        "Copy a bus in a file, also while it is in use; the copy is one file and was checked.",
        ("parley bus backup sqlite:///bus.db bus-backup.db",),
    ),
    "bus restore": Help(
        "Put a backup in the place of a bus that no process uses; the bus that was there is kept.",
        ("parley bus restore bus-backup.db sqlite:///bus.db",),
    ),
    "journal": Help("Make an auditor's keys; look at, check, export and prune journals.", ()),
    "journal keygen": Help(
        "Make an auditor's key pair: a private key file, and the public key that nodes are told.",
        ("parley journal keygen --out auditor.key",),
    ),
    "journal inspect": Help(
        "Show the segments, runs and sessions of the journals in a directory.",
        ("parley journal inspect journals --sessions",),
    ),
    "journal verify": Help(
        "Verify the journals in a directory; exit 7 if there are findings.",
        ("parley journal verify journals --auditor-key auditor.key",),
    ),
    "journal export": Help(
        "Write the journals in a directory, verified: events, sessions, tunnels and findings.",
        ("parley journal export journals --out rows --auditor-key auditor.key",),
    ),
    "journal prune": Help(
        "Remove the oldest segments of the journals in a directory; never one that is written.",
        ("parley journal prune journals --older-than 30d --dry-run",),
    ),
    "pipeline": Help("From journals to tables and a report, on Apache Spark.", ()),
    "pipeline run": Help(
        "Make tables of journals: what is new since the last run.",
        ("parley pipeline run --journals journals --tables tables --auditor-key auditor.key",),
    ),
    "pipeline follow": Help(
        "Make tables of journals while they are written, until it is stopped.",
        ("parley pipeline follow --journals journals --tables tables --refresh 60",),
    ),
    "pipeline report": Help(
        "Write the report of the tables as one HTML page.",
        ("parley pipeline report --tables tables --html report.html",),
    ),
    "peers": Help("Show and change known peers.", ()),
    "peers list": Help(
        "List the known peers, or with --accounts the nodes that have an account at a server here.",
        ("parley peers list",),
    ),
    "peers add": Help(
        "Record a node by its id, and under NAME; with --accounts give it an account.",
        ("parley peers add 5qwpznkpw6p27h37murnr6ojwbs6gvnsgqpj74wvvy3aqjorrlkq bob",),
    ),
    "peers forget": Help(
        "Forget a peer: its sessions end, and the node that answers under its names next is new; "
        "with --accounts remove its account.",
        ("parley peers forget tcp://127.0.0.1:4747",),
    ),
    "peers rename": Help(
        "Give a peer another name; it keeps the addresses it is dialled at.",
        ("parley peers rename tcp://127.0.0.1:4747 bob",),
    ),
    "context": Help("Names for the nodes that you speak with, and how you do.", ()),
    "context add": Help(
        "Give a node a name, with the key and the trust that belong to it.",
        (
            "parley context add home tcp://127.0.0.1:4747 --use",
            "parley context add shop tcp://shop.example:4747 --identity shop.key --trust known",
        ),
    ),
    "context use": Help(
        "Have commands that are given no ADDR go to this context's; without NAME to none.",
        ("parley context use home", "parley context use"),
    ),
    "context list": Help("Show all contexts; * is the one in use.", ("parley context list",)),
    "context show": Help(
        "Show what a context stands for; without NAME the one in use.",
        ("parley context show", "parley context show shop"),
    ),
    "context remove": Help(
        "Forget a context; key files and known peers stay.", ("parley context remove shop",)
    ),
    "federation": Help(
        "Look at a federation of servers: who is there, which way, and what is wrong.", ()
    ),
    "federation list": Help(
        "Show a server's links, and all servers that it knows of.",
        ("parley federation list tcp://127.0.0.1:4747 --identity admin.key",),
    ),
    "federation path": Help(
        "Show the way that a tunnel from a server takes to another one, or to an account there.",
        (
            "parley federation path tcp://127.0.0.1:4747 "
            "gjh7o3vmczh323dcm4esnkqtgek2ozre7tgnw7x5sdx6jnpylhda --identity admin.key",
        ),
    ),
    "federation check": Help(
        "Show what is wrong in a federation, as one of its servers sees it; exits with 1 then.",
        ("parley federation check tcp://127.0.0.1:4747 --identity admin.key",),
    ),
    "doctor": Help(
        "Look for what is wrong or weak here, and with a node; exit 1 if there is a problem.",
        ("parley doctor", "parley doctor tcp://127.0.0.1:4747 --config parley.toml"),
    ),
    "completion": Help(
        "Print the script that completes parley's commands; `source` it from the shell's start.",
        ("parley completion bash > ~/.parley-completion",),
    ),
    "errors": Help(
        "Explain close codes, result codes, those of other dialects, and exit codes.",
        ("parley errors deadline-exceeded", "parley errors 17"),
    ),
    "demo-responder": Help("The demo's other process.", ()),
    "demo-server": Help("A server of the federation that the demo shows.", ()),
}
