"""README.md says what the code says."""

from __future__ import annotations

import readme_tables


def test_the_table_of_options_is_the_one_in_the_code() -> None:
    text = readme_tables.README.read_text(encoding="utf-8")

    assert readme_tables.filled(text, "options", readme_tables.options()) == text, "run ./scripts/readme"
