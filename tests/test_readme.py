"""README.md says what the code says."""

from __future__ import annotations

import re

import readme_tables

from mtl.cli.main import app
from pyspark_mtl.option_table import OPTIONS

PAGE = readme_tables.ROOT / "spark-submit-examples" / "coming-from-kafka.md"


def test_the_table_of_options_is_the_one_in_the_code() -> None:
    text = readme_tables.README.read_text(encoding="utf-8")

    assert readme_tables.filled(text, "options", readme_tables.options()) == text, "run ./scripts/readme"


def test_a_default_is_shown_as_it_would_be_given() -> None:
    defaults = [option for option in OPTIONS if not isinstance(option.default, str | None)]
    assert len(defaults) > 5
    for option in defaults:
        assert option.parse(readme_tables.shown(option.default)) == option.default, option.name


def test_what_the_page_for_kafkas_users_points_at_is_there() -> None:
    """Its options, tests, commands and files."""
    text = PAGE.read_text(encoding="utf-8")
    quoted = set(re.findall(r"`([^`]+)`", text))
    tests = {one for one in quoted if one.startswith("tests/")}
    assert len(tests) > 10
    for one in tests:
        file, _, name = one.partition("::")
        assert f"def {name}(" in (readme_tables.ROOT / file).read_text(encoding="utf-8"), one
    commands = {command.name for command in app.registered_commands} | {
        group.name for group in app.registered_groups
    }
    assert {one.split()[1] for one in quoted if one.startswith("mtl ")} <= commands
    for one in re.findall(r"\]\(([^)#]+)", text):
        assert (PAGE.parent / one).exists(), one


def test_the_page_for_kafkas_users_names_options_that_there_are() -> None:
    rows = [
        line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    cells = [row[1] if "the same" in row[2] else row[2] for row in rows]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    columns = {"body", "resource", "sequence", "timestamp", "properties"}
    assert named - columns <= {option.name for option in OPTIONS}
    assert len(named) > 30
