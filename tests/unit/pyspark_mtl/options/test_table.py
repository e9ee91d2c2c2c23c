from __future__ import annotations

import pytest

from pyspark_mtl.options.table import BY_KEY, OPTIONS, Use


def test_option_names_are_unique_in_any_case() -> None:
    assert len(BY_KEY) == len(OPTIONS)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_has_a_meaning_and_a_use(option: object) -> None:
    row = next(candidate for candidate in OPTIONS if candidate is option)
    assert row.meaning
    assert all(use.words for use in Use.ALL if use & row.use)
