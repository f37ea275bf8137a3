"""The standard files of the process, made fit for a command before it begins."""

import os
import sys


def set_up_streams() -> None:
    """Make the three standard files fit for whatever a command meets.

    A closed one is replaced by the null device: its number would go to the next socket, and what is
    printed to the peer. What is for people goes nowhere then, and not to standard output, where
    `print` would put it. What an encoding does not have is escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    # That standard input is closed is said when it is read.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # until the process ends
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
