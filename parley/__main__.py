"""Run the command line. Signals end it without a traceback from the first import on.

Imports at the top of this module run before signals are handled, so they are few.
"""

import gc
import os
import signal
import sys
from importlib.util import find_spec

NEEDED = ("click", "prompt_toolkit", "rich", "watchfiles")


def main() -> None:
    """The entry point of the script `parley`; it does not return."""
    # Where SIGINT is ignored, as a script's `parley .. &` has it, that stays.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Not as an exception: some of what is imported would swallow it, or tell of it.
        signal.signal(signal.SIGINT, _leave)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        from parley._node.logs import needs_extra

        print(f"parley: {needs_extra(f'the command line ({missing[0]})', 'cli')}", file=sys.stderr)
        sys.exit(2)
    if "_PARLEY_COMPLETE" in os.environ:
        from parley._node.cli.completion.responder import answer

        answer()
        return
    # Imports make much and drop little: to look for garbage meanwhile is in vain. A command that
    # begins turns it on again, and has SIGINT as it usually is (`node.cli.commands.framework`).
    gc.disable()
    if sys.argv[1:2] in (["serve"], ["run"]):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which asks for settings, or for nothing
    from parley._node.cli.main import main as run

    try:
        run()
    except KeyboardInterrupt:  # before or after the command
        sys.exit(128 + signal.SIGINT)


def _leave(number: int, frame: object) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
