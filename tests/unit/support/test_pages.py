from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support import pages

PAGE = Path("page.md")


def block(language: str, text: str) -> pages.Block:
    return pages.Block(language, text, 1, is_output=False)


def test_blocks_have_a_language_a_line_and_may_be_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# A\n\n```python\nprint(1)\n```\n\n```text title="Output"\n1\n```\n')
    code, output = pages.blocks(page)
    assert (code.language, code.text, code.line, code.is_output) == ("python", "print(1)\n", 4, False)
    assert output.is_output


def test_a_block_without_a_language_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```\nprint(1)\n```\n")
    with pytest.raises(ValueError, match="language"):
        pages.blocks(page)


def test_an_output_is_compared_line_by_line() -> None:
    pages.compare("a 1 b\n[x]\n", block("text", "a … b\n[x]\n"), PAGE)
    for printed in ("a 1 c\n[x]\n", "a 1 b\n", "a 1 b\n[x]\nmore\n", "a 1 b\nx\n"):
        with pytest.raises(AssertionError, match="it prints"):
            pages.compare(printed, block("text", "a … b\n[x]\n"), PAGE)


def test_unrun_commands_must_exist() -> None:
    pages.check(
        block("sh", "mtl tail orders --from 1 | mtl publish late  # both\nX=1 ./scripts/demo --kill\n")
    )
    for wrong in ("mtl tail orders --form 1", "mtl nothing", "./scripts/nothing", "somebody-elses-command"):
        with pytest.raises(Exception):  # noqa: B017, PT011 usage errors of the command line, or an assertion
            pages.check(block("sh", wrong))


def test_json_blocks_are_parsed() -> None:
    pages.check(block("json", '{"a": 1}'))
    with pytest.raises(msgspec.DecodeError):
        pages.check(block("json", '{"a": }'))


def test_an_unknown_language_is_an_error() -> None:
    with pytest.raises(AssertionError, match="cobol"):
        pages.check(block("cobol", "STOP RUN."))
