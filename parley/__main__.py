"""The command-line entry point. Signals end it without a traceback, even during its imports.

Only a few modules are imported at the top, because these imports run before signals are handled.
"""

import gc
import os
import signal
import sys
from importlib.util import find_spec

NEEDED = ("click", "prompt_toolkit", "rich", "watchfiles")


def main() -> None:
    """Run the script `parley` and exit."""
    # If SIGINT is ignored, as for `parley .. &` in a shell script, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Exit immediately: some imported modules would swallow or report KeyboardInterrupt.
        signal.signal(signal.SIGINT, _leave)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        from parley._node.logs import needs_extra

        print(f"parley: {needs_extra(f'the command line ({missing[0]})', 'cli')}", file=sys.stderr)
        sys.exit(2)
    if "_PARLEY_COMPLETE" in os.environ:
        from parley._node.cli.completion.responder import answer

        answer()
        return
    # Imports create many objects and free few, so garbage collection would waste time here.
    # Commands turn it on again and restore SIGINT (`node.cli.commands.framework`).
    gc.disable()
    if sys.argv[1:2] in (["serve"], ["run"]):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # later it reloads the settings
    from parley._node.cli.main import main as run

    try:
        run()
    except KeyboardInterrupt:  # before or after the command
        sys.exit(128 + signal.SIGINT)


def _leave(number: int, frame: object) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
