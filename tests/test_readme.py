"""README.md and the pages in docs agree with the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from documentation import examples, generated, headline, pools, settings

from mtl import errors
from mtl.broker.runtime.config import BrokerConfig
from mtl.cli.main import app
from mtl.wire import control
from pyspark_mtl.options.table import OPTIONS
from tests.support import pages

KAFKA = generated.ROOT / "spark-submit-examples" / "coming-from-kafka.md"
LONGEST_README = 150
MOST_BARS = 8


@pytest.mark.parametrize("page", generated.PARTS, ids=lambda page: page.name)
def test_generated_parts_of_a_page_are_up_to_date(page: Path) -> None:
    how = "run ./scripts/docs, or: PYTHONPATH=src:scripts python -m documentation.generated"
    assert generated.current(page) == page.read_text(encoding="utf-8"), how


def test_every_limit_is_in_a_table_of_pools() -> None:
    assert not pools.unnamed(), (
        "scripts/documentation/pools.py: who fills it, whose share is it, what do others see?"
    )


def test_a_default_is_shown_as_a_valid_value() -> None:
    defaults = [option for option in OPTIONS if not isinstance(option.default, str | None)]
    assert len(defaults) > 5
    for option in defaults:
        assert option.parse(generated.formatted(option.default)) == option.default, option.name


def test_every_command_of_the_protocol_has_an_example() -> None:
    documented = {request.command.lower() for request, _ in examples.CONTROL}
    assert documented == set(control.REQUESTS)
    data = {type(command).__name__ for _, command in examples.DATA}
    assert data == {"Lease", "Response", "Summon", "Dismiss", "Content", "Confirm", "Reject", "Ping", "Pong"}


def test_encoded_examples_are_decoded() -> None:
    for request, reply in examples.CONTROL:
        assert control.decode_request(control.encode_request(request)) == request
        encoded = control.encode_reply(reply.code, reply)
        assert control.decode_reply(encoded, type(request)) == reply


def test_every_setting_of_the_broker_is_on_its_page() -> None:
    assert {name for name, _, _ in settings.rows()} == set(_settings(BrokerConfig, ""))


def _settings(kind: type[msgspec.Struct], section: str) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _settings(field.type, f"{field.encode_name}.")
        else:
            yield f"{section}{field.encode_name}"


def test_every_error_and_every_reason_is_on_its_page() -> None:
    text = (generated.DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, re.MULTILINE))
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == "mtl.errors"
    }
    assert listed == {name: kind.__bases__[0].__name__ for name, kind in kinds.items()}
    reasons = {
        value
        for name, value in vars(control).items()
        if name.isupper() and isinstance(value, str) and name != "LOCAL_KEY"
    }
    assert set(re.findall(r"^\| \d{3} \| `([a-z-]+)` \|", text, re.MULTILINE)) == reasons


def test_the_headline_plot_has_few_bars_each_with_a_row() -> None:
    bars = headline.ratios(generated.SPEED.read_text(encoding="utf-8"))
    assert 0 < len(bars) <= MOST_BARS
    assert all(ratio > 0 for _, ratio in bars)


def test_the_readme_is_short() -> None:
    assert len(pages.README.read_text(encoding="utf-8").splitlines()) <= LONGEST_README


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_links_of_a_page_to_files_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_files_named_on_a_page_exist(page: Path) -> None:
    """In backticks, from the project's root; NAME stands for any."""
    for path in re.findall(r"`((?:src|tests|scripts|conf|docs)/[^`\s:]+)", page.read_text(encoding="utf-8")):
        assert "NAME" in path or (generated.ROOT / path).exists(), path


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_unrun_commands_on_a_page_exist(page: Path) -> None:
    for block in pages.blocks(page):
        if block.language in pages.CHECKED and block.language != "toml":
            pages.check(block)


def test_references_on_the_page_for_kafka_users_exist() -> None:
    """Its options, tests, commands and files."""
    text = KAFKA.read_text(encoding="utf-8")
    quoted = set(re.findall(r"`([^`]+)`", text))
    tests = {quote for quote in quoted if quote.startswith("tests/")}
    assert len(tests) > 10
    for test in tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (generated.ROOT / file).read_text(encoding="utf-8"), test
    commands = {command.name for command in app.registered_commands} | {
        group.name for group in app.registered_groups
    }
    assert {quote.split()[1] for quote in quoted if quote.startswith("mtl ")} <= commands
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (KAFKA.parent / link).exists(), link


def test_options_on_the_page_for_kafka_users_exist() -> None:
    rows = [
        line.split("|") for line in KAFKA.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    cells = [row[1] if "the same" in row[2] else row[2] for row in rows]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    columns = {"body", "resource", "sequence", "timestamp", "properties"}
    assert named - columns <= {option.name for option in OPTIONS}
    assert len(named) > 30
