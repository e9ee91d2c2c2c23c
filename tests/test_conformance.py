"""Every binding requirement has a test, every marker a requirement, and CONFORMANCE.md is up to date."""

from __future__ import annotations

from pathlib import Path

import conformance
import pytest
from conformance import BINDING, Document, Requirement, Shown, Unusable

REQUIRED = conformance.documents()
TESTED = conformance.evidence()


def test_every_must_and_should_has_a_test() -> None:
    untested = [
        r.id for document in REQUIRED for r in document if r.level in BINDING and not TESTED.get(r.id)
    ]
    assert not untested, "mark a test that shows these"


def test_every_marker_names_a_requirement() -> None:
    known = {r.id for document in REQUIRED for r in document}
    unknown = {name: list(map(str, tests)) for name, tests in TESTED.items() if name not in known}
    assert not unknown, "write these in tests/requirements, or correct the markers"


def test_the_pages_are_up_to_date() -> None:
    page = conformance.CONFORMANCE.read_text(encoding="utf-8")
    assert page == conformance.page(REQUIRED, TESTED), "run ./scripts/conformance"
    tests = (conformance.ROOT / conformance.TESTS_PAGE).read_text(encoding="utf-8")
    assert tests == conformance.tests_page(REQUIRED, TESTED), "run ./scripts/conformance"


@pytest.mark.parametrize(("document", "count"), [("mtl", 117), ("mc0", 30), ("mm2", 66), ("rs", 48)])
def test_requirements_are_numbered_without_gaps(document: str, count: int) -> None:
    found = conformance.document(conformance.TESTS / "requirements" / f"{document}.toml")
    assert [r.id for r in found] == [f"{document.upper()}-{n:02d}" for n in range(1, count + 1)]


# The rules above depend on the correct parsing of files and tests.


def test_markers_of_functions_and_classes_are_read(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        '@pytest.mark.requirement("X-1", "X-2")\n'
        "@pytest.mark.parametrize('n', [1])\n"
        "def test_one(n): ...\n"
        "def test_without(): ...\n"
        '@pytest.mark.requirement("X-2")\n'
        "class TestThem:\n"
        '    @pytest.mark.requirement("X-3")\n'
        "    async def test_two(self): ...\n",
        encoding="utf-8",
    )
    first, second = Shown("test_a.py", "test_one"), Shown("test_a.py", "TestThem.test_two")
    assert conformance.evidence(tmp_path, tmp_path) == {
        "X-1": [first],
        "X-2": [second, first],
        "X-3": [second],
    }


@pytest.mark.parametrize("marker", ["requirement()", "requirement(ID)", "requirement(1)"])
def test_a_marker_that_cannot_be_read_is_an_error(tmp_path: Path, marker: str) -> None:
    (tmp_path / "test_a.py").write_text(f"@pytest.mark.{marker}\ndef test_one(): ...\n", encoding="utf-8")
    with pytest.raises(Unusable, match=r"test_a.py:1"):
        conformance.evidence(tmp_path, tmp_path)


ENTRY = '[section.requirements.X-1]\nlevel = "must"\ntext = "a"\nhow = "b"'


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY.replace("must", "shall"),
        ENTRY.replace("b", ""),
        f'{ENTRY}\n[[section]]\ntitle = "B"\n{ENTRY}',
    ],
)
def test_an_invalid_file_is_an_error(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(f'title = "T"\nsource = "S"\n[[section]]\ntitle = "A"\n{entry}\n', encoding="utf-8")
    with pytest.raises(Unusable, match="X-1"):
        conformance.document(path)


def test_a_requirement_is_a_row_of_both_pages() -> None:
    differing = Requirement("X-2", "may", "d", "DEVIATES: e")
    document = Document("T", "S", {"A": (Requirement("X-1", "must", "a|b", "c"), differing)})
    tested = {"X-1": [Shown("tests/test_a.py", "test_one"), Shown("tests/test_b.py", "test_two")]}
    page = conformance.page([document], tested)
    assert "S>: 2 requirements, 1 tested, 1 with a difference." in page
    tests = conformance.TESTS_PAGE
    assert (
        "| | | **A** | | |\n"
        f"| [X-1]({tests}#x-1) | must | a\\|b | met | c |\n"
        f"| [X-2]({tests}#x-2) | may | d | differs | DEVIATES: e |\n"
    ) in page
    assert (
        '| <a id="x-1"></a>X-1 | [test_a](../../tests/test_a.py)::test_one<br>'
        "[test_b](../../tests/test_b.py)::test_two |\n"
        '| <a id="x-2"></a>X-2 |  |\n'
    ) in conformance.tests_page([document], tested)
