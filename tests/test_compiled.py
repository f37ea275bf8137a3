"""The core is compiled as a whole or not at all."""

from tests.compiled import CORE, is_compiled


def test_all_of_the_core_is_of_one_kind() -> None:
    assert len({is_compiled(module) for module in CORE}) == 1
