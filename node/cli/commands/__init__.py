"""Every command of `parley` is declared here, with its options: add a new one to the file of its
section (`connect`, `serve`, `bus`, `journal`, `setup`, `try_it`), naming the function in
`node/cli/` that runs it. click makes help and completion from these declarations.
"""
