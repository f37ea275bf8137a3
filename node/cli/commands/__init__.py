"""Declarations of all commands of `parley`.

Add a new command to the file of its section (`connect`, `serve`, `bus`, `journal`, `setup`,
`try_it`), and name the function in `node/cli/` that runs it. click generates help and completion
from these declarations.
"""
