"""docs/guides/send-files.md describes refusals as they are in the code."""

from pathlib import Path

from parley._node.apps.transfer.protocol import RefusalCode


def test_every_refusal_is_described() -> None:
    text = (Path(__file__).parents[4] / "docs" / "guides" / "send-files.md").read_text()
    for code in RefusalCode:
        assert f"\n| {code.name.lower().replace('_', ' ')} | {code.value} | " in text
