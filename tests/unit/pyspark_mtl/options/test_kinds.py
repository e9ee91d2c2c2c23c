from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mtl.options import kinds
from pyspark_mtl.options.kinds import EARLIEST, GROUP, LATEST, ReadPosition, ReadPositions


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (kinds.boolean, "true", True),
        (kinds.boolean, "False", False),
        (kinds.count, "1", 1),
        (kinds.version, "0", 0),
        (kinds.duration, "500ms", 0.5),
        (kinds.duration, "5s", 5.0),
        (kinds.duration, "15m", 900.0),
        (kinds.duration, "1.5 h", 5400.0),
        (kinds.name, " orders ", "orders"),
        (kinds.names, "b, a", ("a", "b")),
        (kinds.names, '["a,1", "b"]', ("a,1", "b")),
        (kinds.pattern, "orders-.*", "orders-.*"),
        (kinds.pattern, r"orders-\pN+\z", r"orders-\pN+\z"),  # RE2's, not Python's
        (kinds.starting, "earliest", ReadPositions(EARLIEST)),
        (kinds.starting, "Latest", ReadPositions(LATEST)),
        (kinds.starting, "group", ReadPositions(GROUP)),
        (
            kinds.starting,
            '{"a": 17, "b": -1, "c": -2, "d": "group"}',
            ReadPositions(None, {"a": ReadPosition("sequence", 17), "b": LATEST, "c": EARLIEST, "d": GROUP}),
        ),
        (
            kinds.ending,
            '{"a": 17, "b": "latest"}',
            ReadPositions(None, {"a": ReadPosition("sequence", 17), "b": LATEST}),
        ),
        (kinds.instant, "1700000000000", ReadPositions(ReadPosition("time", 1_700_000_000_000_000))),
        (
            kinds.instant,
            "2023-11-14T22:13:20.000001Z",
            ReadPositions(ReadPosition("time", 1_700_000_000_000_001)),
        ),
        (
            kinds.instant,
            "2023-11-15T00:13:20+02:00",
            ReadPositions(ReadPosition("time", 1_700_000_000_000_000)),
        ),
        (
            kinds.instants,
            '{"a": 1700000000000}',
            ReadPositions(None, {"a": ReadPosition("time", 1_700_000_000_000_000)}),
        ),
        (kinds.one_of("error", "latest"), "Error", "error"),
    ],
)
def test_valid_values_are_parsed(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (kinds.boolean, "yes"),
        (kinds.boolean, "1"),
        (kinds.boolean, ""),
        (kinds.count, "0"),
        (kinds.count, "-1"),
        (kinds.count, "1e3"),
        (kinds.count, "9223372036854775808"),
        (kinds.count, "9" * 5000),
        (kinds.count, "\u0663"),
        (kinds.duration, "5"),
        (kinds.duration, "0s"),
        (kinds.duration, "-5s"),
        (kinds.duration, "5 weeks"),
        (kinds.duration, "9" * 400 + "s"),
        (kinds.duration, "730d"),
        (kinds.name, ""),
        (kinds.name, "a\nb"),
        (kinds.name, "\u00e4" * 128),
        (kinds.names, "a,,b"),
        (kinds.names, "a,a"),
        (kinds.names, "[1]"),
        (kinds.names, "[]"),
        (kinds.names, "[" * 100_000),
        (kinds.pattern, "("),
        (kinds.pattern, "a(?!b)"),
        (kinds.starting, "middle"),
        (kinds.starting, '{"a": 0}'),
        (kinds.starting, '{"a": -3}'),
        (kinds.starting, '{"a": true}'),
        (kinds.starting, '{"a": 1, "a": 2}'),
        (kinds.starting, "{}"),
        (kinds.starting, "{"),
        (kinds.ending, "earliest"),
        (kinds.ending, '{"a": -2}'),
        (kinds.instant, "yesterday"),
        (kinds.instant, "2023-11-14T22:13:20"),
        (kinds.instant, "1969-01-01T00:00:00Z"),
        (kinds.instants, '{"a": true}'),
        (kinds.one_of("error", "latest"), "never"),
    ],
)
def test_invalid_values_are_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)


@pytest.mark.parametrize(
    "parse",
    [
        kinds.boolean,
        kinds.count,
        kinds.duration,
        kinds.names,
        kinds.starting,
        kinds.ending,
        kinds.instant,
    ],
)
@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(parse: Callable[[str], object], text: str) -> None:
    try:
        parse(text)
    except ValueError:
        pass


def test_positions_per_resource_are_parsed() -> None:
    named = kinds.starting('{"a": 17}')
    assert named.of("a", EARLIEST) == ReadPosition("sequence", 17)
    assert named.of("found later", EARLIEST) == EARLIEST
    assert ReadPositions(LATEST).of("any", EARLIEST) == LATEST
    assert kinds.starting('{"a": 17, "b": "group"}').uses("group")
    assert not named.uses("group")
