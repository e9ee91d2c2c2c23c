from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import OptionError
from pyspark_mtl.options.kinds import EARLIEST, GROUP, LATEST, ReadPosition, ReadPositions
from pyspark_mtl.options.settings import (
    Bodies,
    Creation,
    Limits,
    ReadSettings,
    WriteSettings,
    parse,
    read_settings,
    write_settings,
)
from pyspark_mtl.options.table import OPTIONS, Option, Use


def lowered(**options: str) -> dict[str, str]:
    """Options as Spark passes them, in lower case."""
    return {name.lower(): value for name, value in options.items()}


def stream(**options: str) -> ReadSettings:
    return read_settings(parse(lowered(**({"resources": "a"} | options))), streaming=True)


def batch(**options: str) -> ReadSettings:
    return read_settings(parse(lowered(**({"resources": "a"} | options))), streaming=False)


def sink(*, streaming: bool = True, **options: str) -> WriteSettings:
    return write_settings(parse(lowered(**options)), streaming=streaming)


# --- strictness ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "suggested"),
    [
        ("startingoffset", "startingOffsets"),
        ("resorces", "resources"),
        ("maxoffsetpertrigger", "maxOffsetsPerTrigger"),
        ("failondatalos", "failOnDataLoss"),
        ("endpiont", "endpoint"),
        ("txnappid2", "txnAppId"),
    ],
)
def test_a_misspelt_option_is_an_error_with_a_suggestion(key: str, suggested: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option '{key}'; did you mean '{suggested}'"):
        parse({key: "x"})


def test_an_unknown_option_without_similar_one_is_an_error_with_all_names() -> None:
    with pytest.raises(
        OptionError, match=r"unknown option 'zzzz'; the options are bodyFormat, .*virtualHost"
    ):
        parse({"zzzz": "x"})


@given(st.text(min_size=8, alphabet=st.characters(categories=["L", "N"])))
def test_the_value_of_an_unknown_option_is_not_in_the_error(secret: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse({"pasword": f"<{secret}>"})
    assert f"<{secret}>" not in str(caught.value)


def test_options_of_spark_are_ignored() -> None:
    given = parse({"path": "x", "checkpointlocation": "/tmp/c", "queryname": "q", "__internal": "1"})
    assert not given.values


def test_a_value_that_does_not_fit_names_its_option() -> None:
    with pytest.raises(OptionError, match="option failOnDataLoss: it is neither true nor false"):
        parse({"failondataloss": "yes"})


def test_names_are_case_insensitive() -> None:
    assert "maxOffsetsPerTrigger" in parse({"MaxOffsetsPerTRIGGER": "5"})


# --- reads --------------------------------------------------------------------------------------------------


def test_the_defaults_of_a_stream() -> None:
    settings = stream()
    assert settings.connect.endpoint == "tcp://127.0.0.1:5975"
    assert (settings.resources, settings.pattern, settings.group) == (("a",), None, None)
    assert settings.starting == ReadPositions(LATEST)
    assert settings.fail_on_data_loss
    assert not settings.include_properties
    assert not settings.confirm_on_start
    assert settings.limits == Limits()
    assert not settings.limits.any


def test_the_defaults_of_a_batch() -> None:
    assert (batch().starting, batch().ending) == (ReadPositions(EARLIEST), ReadPositions(LATEST))


def test_with_a_group_reading_starts_at_its_cursor_by_default() -> None:
    assert stream(group="g").starting == ReadPositions(GROUP)
    assert stream(group="g", startingOffsets="earliest").starting == ReadPositions(EARLIEST)


def test_limits_can_be_combined() -> None:
    limits = stream(
        maxOffsetsPerTrigger="1000", maxBytesPerTrigger="1m", minOffsetsPerTrigger="10", maxTriggerDelay="30s"
    ).limits
    assert limits == Limits(1000, 1 << 20, 10, 30.0)
    assert limits.any


def test_a_pattern_may_have_positions_for_some_resources() -> None:
    given = parse(lowered(resourcePattern="a.*", startingOffsets='{"a1": 5}'))
    settings = read_settings(given, streaming=True)
    assert settings.starting.of("a1", EARLIEST) == ReadPosition("sequence", 5)
    assert settings.starting.of("a2", EARLIEST) == EARLIEST


@pytest.mark.parametrize(
    ("streaming", "options", "words"),
    [
        (True, {}, "neither is given"),
        (True, {"resources": "a", "resourcePattern": "b"}, "both are given"),
        (True, {"resource": "a"}, "resource has no meaning in a streaming read.*did you mean 'resources'"),
        (
            True,
            {"resources": "a", "endingOffsets": "latest"},
            "endingOffsets=latest has no meaning in a stream",
        ),
        (True, {"resources": "a,b", "endingOffsets": '{"a": 9, "b": -1}'}, "use Trigger.AvailableNow"),
        (
            True,
            {"resources": "a", "txnVersion": "1"},
            "no meaning in a streaming read, only in a batch write",
        ),
        (False, {"resources": "a", "maxOffsetsPerTrigger": "5"}, "no meaning in a batch read"),
        (True, {"resources": "a", "txnAppId": "x"}, "only in a streaming write or a batch write"),
        (True, {"resources": "a", "startingOffsets": "group"}, "needs the option group"),
        (False, {"resources": "a", "formerPattern": "b"}, "no meaning in a batch read"),
        (True, {"resources": "a", "formerPattern": "("}, "not a regular expression"),
        (True, {"resources": "a", "startingOffsets": '{"a": "group"}'}, "needs the option group"),
        (False, {"resources": "a", "startingOffsets": "latest"}, "reads nothing"),
        (True, {"resources": "a,b", "startingOffsets": '{"a": 1}'}, "no place to start is given for .* 'b'"),
        (
            True,
            {"resources": "a", "startingOffsets": '{"a": 1, "b": 2}'},
            "'b', which resources does not name",
        ),
        (False, {"resources": "a,b", "endingOffsets": '{"a": 1}'}, "no place to end is given for .* 'b'"),
        (True, {"resources": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is above"),
        (True, {"resources": "a", "maxTriggerDelay": "5s"}, "without minOffsetsPerTrigger"),
        (True, {"resources": "a", "startingOffsetsByTimestampStrategy": "latest"}, "without a starting time"),
        (True, {"resources": "a", "requestTimeout": "60s"}, "is longer than retryDeadline"),
    ],
)
def test_contradictory_options_of_a_read_are_errors(
    streaming: bool, options: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        read_settings(parse(lowered(**options)), streaming=streaming)


# --- writes -------------------------------------------------------------------------------------------------


def test_the_defaults_of_a_write() -> None:
    settings = sink()
    assert settings.exactly_once
    assert (settings.create, settings.truncate) == (None, False)
    assert (settings.resource, settings.application, settings.version) == (None, None, None)


def test_options_of_created_resources() -> None:
    assert sink(createResource="false").create is None
    assert sink(createResource="true").create == Creation("sync")
    wanted: dict[str, Any] = {
        "createDurability": "os",
        "createRetainBytes": "10g",
        "createRetainAge": "7d",
        "createRetainContents": "1000",
        "createRetainFor": "etl, audit",
        "createHardBytes": "20g",
    }
    made = Creation("os", 10 << 30, 7 * 86_400.0, 1_000, ("audit", "etl"), 20 << 30)
    assert sink(createResource="true", **wanted).create == made


def test_truncate_applies_only_to_an_overwrite() -> None:
    given = parse(lowered(resource="a", overwriteMode="truncate"))
    assert not write_settings(given, streaming=False).truncate
    assert write_settings(given, streaming=False, overwrite=True).truncate
    given = parse(lowered(resource="a", overwriteMode="truncate", deliveryGuarantee="at-least-once"))
    with pytest.raises(OptionError, match="it needs deliveryGuarantee=exactly-once"):
        write_settings(given, streaming=True, overwrite=True)


def test_a_batch_write_with_application_and_version_is_repeatable() -> None:
    settings = sink(streaming=False, txnAppId="loader", txnVersion="0")
    assert (settings.application, settings.version) == ("loader", 0)


@pytest.mark.parametrize(
    ("streaming", "options", "words"),
    [
        (False, {"txnAppId": "x"}, "only one is given"),
        (False, {"txnVersion": "1"}, "only one is given"),
        (False, {"replayCheck": "counts"}, "replayCheck has no meaning"),
        (True, {"replayCheck": "counts", "deliveryGuarantee": "at-least-once"}, "replayCheck has no meaning"),
        (True, {"replayCheck": "none"}, "option replayCheck"),
        (True, {"txnVersion": "1"}, "no meaning in a streaming write, only in a batch write"),
        (True, {"resources": "a"}, "no meaning in a streaming write"),
        (True, {"deliveryGuarantee": "at-least-once", "txnAppId": "x"}, "remembers no batches"),
        (True, {"deliveryGuarantee": "maybe"}, "not one of exactly-once, at-least-once"),
        (True, {"createRetainAge": "7d"}, "createRetainAge has no meaning without createResource=true"),
        (False, {"overwriteMode": "replace"}, "it is not one of truncate"),
    ],
)
def test_contradictory_options_of_a_write_are_errors(
    streaming: bool, options: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        sink(streaming=streaming, **options)


# --- security -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
def test_credentials_reach_every_connection(*, streaming: bool) -> None:
    given = {
        "user": "etl",
        "password": " secret ",
        "saslMechanism": "SCRAM-SHA-256",
        "curveServerKey": "/keys/broker.pub",
        "curveKeyFile": "/keys/etl.key",
    }
    for settings in (stream(**given) if streaming else batch(**given), sink(streaming=streaming, **given)):
        to = settings.connect
        assert (to.user, to.password, to.sasl_mechanism) == ("etl", " secret ", "SCRAM-SHA-256")
        assert (to.curve_server_key, to.curve_key_file) == ("/keys/broker.pub", "/keys/etl.key")
        assert "secret" not in repr(settings) + str(settings)
    files = stream(user="etl", passwordFile="/run/password").connect
    assert (files.password, files.password_file) == (None, "/run/password")
    assert stream(user="etl", passwordEnv="SECRET").connect.password_env == "SECRET"


def test_secrets_are_hidden_in_the_repr_of_options() -> None:
    assert "secret" not in repr(parse(lowered(password="secret")))


def test_secrets_are_not_in_errors() -> None:
    with pytest.raises(OptionError, match="password: it is empty"):
        stream(user="etl", password="")
    with pytest.raises(OptionError) as caught:
        stream(user="etl", pasword="secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("which", ["starting", "ending"])
def test_precedence_of_starting_options_is_that_of_kafka(which: str, streaming: bool) -> None:
    options = {
        "resources": "a",
        f"{which}Offsets": '{"a": 7}',
        f"{which}OffsetsByTimestamp": '{"a": 2}',
        f"{which}Timestamp": "1",
    }
    found = []
    for name in (None, f"{which}Timestamp", f"{which}OffsetsByTimestamp"):
        options.pop(name or "", None)
        places = getattr(read_settings(parse(options), streaming=streaming), which)
        found.append(places.of("a", LATEST))
    assert found == [ReadPosition("time", 1_000), ReadPosition("time", 2_000), ReadPosition("sequence", 7)]


# --- bodies -------------------------------------------------------------------------------------------------


def test_bodies_are_raw_by_default() -> None:
    assert stream().bodies is None
    assert stream(bodyFormat="raw").bodies is None
    assert sink(resource="a").bodies is None


def test_options_of_typed_bodies() -> None:
    assert stream(bodyFormat="JSON").bodies == Bodies("json")
    assert sink(bodyFormat="arrow", includeMetadata="true").bodies == Bodies("arrow", metadata=True)
    given = batch(
        bodyFormat="text", mode="DROPMALFORMED", columnNameOfCorruptRecord="bad", deadLetter="a.bad"
    )
    assert given.bodies == Bodies("text", mode="dropmalformed", corrupt="bad", dead_letter="a.bad")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "FAILFAST"}, "mode has no meaning with raw bodies; give a bodyFormat"),
        ({"deadLetter": "bad"}, "deadLetter has no meaning with raw bodies"),
        (
            {"bodyFormat": "json", "includeProperties": "true"},
            "give includeMetadata, and a column properties",
        ),
        (
            {"bodyFormat": "json", "mode": "FAILFAST", "deadLetter": "bad"},
            "the first bad body ends the query",
        ),
        ({"bodyFormat": "json", "deadLetter": "a"}, "deadLetter names 'a', which is read: .* without end"),
        (
            {"bodyFormat": "json", "mode": "lenient"},
            "it is not one of permissive, dropmalformed, failfast",
        ),
    ],
)
def test_contradictory_options_of_bodies_are_errors(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        stream(**options)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("form", ["{}", "({}", "[{}", '["{}", 1]', '{{"a": "{}"}}', "{}:1", "tcp:// {}"])
def test_a_wrong_value_is_not_quoted(option: Option, form: str) -> None:
    """A password in the wrong option reaches neither the exception nor its causes."""
    options = {"resources": "a"} | {option.name: form.format("hunter2")}
    shown = ""
    try:
        parsed = parse(options)
        (read_settings if option.use & Use.BATCH_READ else write_settings)(parsed, streaming=False)
    except OptionError as error:
        shown = "".join(traceback.format_exception(error))
    assert "hunter2" not in shown
