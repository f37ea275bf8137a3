"""Shell completion: the shell scripts, and the completions that they request."""
