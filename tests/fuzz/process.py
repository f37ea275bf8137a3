"""The process that fuzzes one target: `python -m tests.fuzz.process TARGET [LIBFUZZER...]`.

Only the code under test is instrumented, so that the fuzzer looks for ways
through it and not through the test's own. libFuzzer's main loop never returns.
"""

import sys
from shlex import quote
from typing import Final

import atheris

from tests.fuzz.script import mutate
from tests.fuzz.targets import SCRIPTED, load

INSTRUMENTED: Final = ("parley._lbm", "parley._crypto", "parley._node")


def main(arguments: list[str]) -> None:
    """Fuzz until a limit among the options is reached, or a bug is found."""
    name, *options = arguments
    with atheris.instrument_imports(include=INSTRUMENTED):
        target = load(name)
    # A merge runs the program's name with other options, by a shell.
    program = f"{quote(sys.executable)} -m {__spec__.name} {name}"
    argv = [program, f"-max_len={target.max_size}", *options]
    if name in SCRIPTED:

        def change(data: bytes, max_size: int, seed: int) -> bytes:
            return mutate(data, max_size, seed, atheris.Mutate, SCRIPTED[name])

        atheris.Setup(argv, target.run, custom_mutator=change)
    else:
        atheris.Setup(argv, target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
