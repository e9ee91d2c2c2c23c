"""A checkpoint with resources that the options do not select."""

from __future__ import annotations

import pytest

from mtl.errors import OffsetError
from pyspark_mtl.options.settings import ReadSettings, parse, read_settings
from pyspark_mtl.source.offsets import INITIAL, Offset, Position
from pyspark_mtl.source.selection import parked
from tests.support.texts import in_order


def settings(**options: str) -> ReadSettings:
    return read_settings(parse({name.lower(): value for name, value in options.items()}), streaming=True)


def checkpoint(*names: str) -> Offset:
    return Offset({name: Position("i", 11) for name in names})


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({"resources": "y"}, "resources=y"),
        ({"resources": "y,z"}, "resources=y,z"),
        ({"resourcePattern": "y.*"}, r"resourcePattern=y\.\*"),
        ({"resourcePattern": "y.*", "formerPattern": "z"}, "resourcePattern"),
    ],
)
def test_the_error_names_the_checkpoint_and_the_options(options: dict[str, str], read: str) -> None:
    with pytest.raises(OffsetError, match=in_order("'x'", 10, "options") + f".*{read}") as caught:
        parked(
            settings(**options), checkpoint("x", "yy") if "resourcePattern" in options else checkpoint("x")
        )
    assert "formerPattern=x;" in str(caught.value)


@pytest.mark.parametrize("options", [{"resources": "x,y"}, {"resourcePattern": "x|y"}])
def test_added_resources_are_no_change_of_the_source(options: dict[str, str]) -> None:
    assert parked(settings(**options), checkpoint("x")) == frozenset()
    assert parked(settings(**options), checkpoint()) == frozenset()
    assert parked(settings(**options), INITIAL) == frozenset()


@pytest.mark.parametrize("options", [{"resources": "y"}, {"resourcePattern": "y"}])
def test_a_deliberate_change_is_named(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    assert parked(settings(**options, formerPattern="[wx]"), checkpoint("x", "y")) == {"x"}
    assert not caplog.records


def test_without_fail_on_loss_the_change_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert parked(settings(resources="y", failOnDataLoss="false"), checkpoint("x", "y")) == {"x"}
    assert "has read 'x' up to 10" in caplog.text
    assert "formerPattern" not in caplog.text


def test_an_error_names_a_few_of_many_resources() -> None:
    with pytest.raises(
        OffsetError, match=in_order("'x101'", 10, "995 more", "y0,y1,y2,y3,y4", "5 more")
    ) as caught:
        parked(
            settings(resources=",".join(f"y{n}" for n in range(10))),
            checkpoint(*(f"x{n}" for n in range(1000))),
        )
    assert len(str(caught.value)) < 600
