"""Comma lists of algorithms' names, as options take them."""

from parley._crypto.registry import NAMES, PARAMETERS, require_name
from parley._node.errors import ConfigError


def parse_names(parameter: str, text: str | None) -> tuple[str, ...]:
    """The names of a comma list, each once; empty if it is not given.

    Raises:
        ConfigError: a list without names. UnknownAlgorithmError: an unknown name.
    """
    return tuple(require_name(parameter, name) for name in _listed(parameter, text))


def _listed(option: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        # An empty variable of a script must not pass for an option that is not given.
        raise ConfigError(f"the {option} list is empty")
    return names


def parse_required(text: str | None) -> dict[str, frozenset[str]]:
    """The names of `--require`, by what they are algorithms of; raises as `parse_names`."""
    required: dict[str, set[str]] = {}
    for name in _listed("require", text):
        parameter = next((p for p in PARAMETERS if name in NAMES[p]), None)
        if parameter is None:
            raise ConfigError(f"--require {name}: unknown algorithm")
        required.setdefault(parameter, set()).add(name)
    return {parameter: frozenset(names) for parameter, names in required.items()}
