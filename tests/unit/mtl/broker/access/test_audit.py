"""The audit log: its events, its rate limit, and the absence of secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtl.broker.access import audit
from mtl.broker.access.audit import Audit, AuditEvent
from mtl.broker.quotas.quotas import DEFAULTS, Quota, QuotaSettings
from mtl.errors import Refused
from mtl.net.origin import Origin
from mtl.protocol.sasl import plain
from mtl.protocol.sasl.client import Credentials
from mtl.protocol.sasl.mechanisms import encode
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.users import logged_in, login, rig_with, user

HERE = Origin("10.0.0.7", "1")
OPEN = control.ConnectionOpen(protocol=control.Protocol())


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """The members of the lines that were written since the last call."""
    caplog.set_level(logging.INFO, "mtl.audit")

    def taken() -> list[dict[str, Any]]:
        records = [r for r in caplog.records if r.name == "mtl.audit"]
        found = [{"level": r.levelname, **vars(r)["fields"]} for r in records]
        caplog.clear()
        return found

    return taken


Lines = Callable[[], list[dict[str, Any]]]


# --- log-ins ------------------------------------------------------------------------------------------------


def test_a_log_in_is_logged(lines: Lines) -> None:
    rig = rig_with(user("me", "secret"))
    lines()
    logged_in(rig, "me", origin=HERE)
    assert lines() == [
        {
            "level": "INFO",
            "event": "login",
            "address": "10.0.0.7",
            "user": "me",
            "virtual-host": "/",
            "mechanism": "SCRAM-SHA-256",
        }
    ]


@pytest.mark.parametrize(
    ("name", "password", "logged", "reason"),
    [
        ("me", "wrong", "me", "wrong proof"),
        ("correct horse", "me", None, "unknown user"),
        ("idle", "secret", "idle", "no grant"),
    ],
)
def test_a_refused_log_in_is_logged_with_reason_and_existing_user(
    lines: Lines, name: str, password: str, logged: str | None, reason: str
) -> None:
    """An unknown name is not logged: it may be a password."""
    rig = rig_with(user("me", "secret"), user("idle", "secret", "read x", vhost="/other"))
    lines()
    with pytest.raises(Refused):
        login(Client(rig, HERE), Credentials(name, password))
    line = lines()[0]
    assert (line["event"], line["level"], line["address"]) == ("login-refused", "WARNING", "10.0.0.7")
    assert line.get("user") == logged
    assert reason in line["reason"]


def test_unoffered_mechanism_foreign_key_and_lock_out_are_logged(lines: Lines) -> None:
    rig = rig_with(user("me", "secret", keys=["mine"]), user("you", "secret"), protected=True)
    lines()
    client = Client(rig, Origin("10.0.0.7", "1 mine"))
    client.ask(OPEN, control.Unauthorized)
    client.ask(control.ConnectionAuthorize(mechanism="sesame", response=""), control.Unauthorized)
    yours = control.ConnectionAuthorize(
        mechanism="PLAIN", response=encode(plain.encode(plain.PlainMessage("you", "secret")))
    )
    client.ask(yours, control.Unauthorized)
    for _ in range(20):
        other = Client(rig, HERE)
        with pytest.raises(Refused):
            login(other, Credentials("me", "wrong"))
    found = [(x.get("user"), x["mechanism"], x["reason"]) for x in lines()]
    assert found[:2] == [
        (None, "unknown", "the mechanism is not offered"),
        ("you", "PLAIN", "the connection's key belongs to another user"),
    ]
    assert found[-1][2].startswith("locked out")


# --- changes ------------------------------------------------------------------------------------------------


def test_changes_are_logged_with_their_user(lines: Lines) -> None:
    rig = rig_with(user("me", "secret"))
    client = logged_in(rig, "me", origin=HERE)
    lines()
    client.create("a")
    client.ask(control.ResourceCreate(resource="a", exist_ok=True), control.ResourceCreated)
    client.ask(control.ResourceList(), control.Reply)
    client.ask(control.CursorOpen(group="g", resource="a"), control.Reply)
    client.ask(control.CursorReset(group="g", resource="a", to=1), control.CursorWasReset)
    client.ask(control.CursorDelete(group="g", resource="a"), control.Ok)
    client.ask(control.StageAbort(stages=["s"]), control.Ok)
    client.ask(control.ResourceDelete(resource="a"), control.Ok)
    found = lines()
    assert [x["event"] for x in found] == [
        "resource-created",
        "cursor-reset",
        "cursor-deleted",
        "stages-aborted",
        "resource-deleted",
    ]
    by = {"user": "me", "address": "10.0.0.7", "virtual-host": "/"}
    assert all(by.items() <= x.items() for x in found)
    assert (found[1]["resource"], found[1]["group"], found[3]["stages"]) == ("a", "g", ["s"])


def test_resources_made_by_a_lease_request_are_logged(lines: Lines) -> None:
    rig = Rig(auto_create=["a*"])
    rig.client().writer("a1")
    assert [(x["event"], x["resource"], x["user"]) for x in lines()] == [
        ("resource-created", "a1", "anonymous")
    ]


def test_a_missing_right_is_logged(lines: Lines) -> None:
    rig = rig_with(user("me", "secret", "read a"))
    client = logged_in(rig, "me", origin=HERE)
    lines()
    assert client.refused(control.ResourceDelete(resource="a")).status == 403
    assert client.refused(control.ResourceDescribe(resource="b")).status == 403
    first, second = lines()
    assert (first["event"], first["command"], first["user"]) == ("not-authorized", "Resource.Delete", "me")
    assert "may not manage 'a'" in first["reason"]
    assert "'b'" in second["reason"]


def test_an_exceeded_quota_is_logged(lines: Lines) -> None:
    rig = rig_with(user("me", "secret"))
    rig.settings["quotas"] = QuotaSettings(DEFAULTS | {Quota.LEASES: 1})
    rig.restart()
    rig.broker.users([user("me", "secret")], rig.now())
    client = logged_in(rig, "me", origin=HERE)
    client.create("a")
    client.writer("a")
    lines()
    client.refused(control.ConnectionWriter(resources=["a"]))
    (line,) = lines()
    assert (line["event"], line["level"], line["user"]) == ("quota-exceeded", "WARNING", "me")
    assert "its quota leases is 1" in line["reason"]


def test_changes_of_users_and_grants_are_logged(lines: Lines) -> None:
    rig = rig_with(user("me", "secret", "read a"), user("old", "secret"))
    lines()
    rig.broker.users([user("me", "other", "write b", keys=["key"]), user("new", None, "read c")], rig.now())
    found = [(x["event"], x["user"], x.get("pattern"), x.get("added")) for x in lines()]
    assert found == [
        ("password-changed", "me", None, None),
        ("keys-changed", "me", None, ["key"]),
        ("granted", "me", "b", None),
        ("revoked", "me", "a", None),
        ("user-added", "new", None, None),
        ("granted", "new", "c", None),
        ("user-removed", "old", None, None),
    ]


def test_leases_ended_by_a_revoked_right_are_logged(lines: Lines) -> None:
    rig = rig_with(user("me", "secret"))
    client = logged_in(rig, "me", origin=HERE)
    client.create("a")
    client.writer("a")
    lines()
    rig.broker.users([], rig.now())
    assert [(x["event"], x["user"], x.get("resources"), x.get("reason")) for x in lines()] == [
        ("user-removed", "me", None, None),
        ("lease-ended", "me", ["a"], "its user has lost the right"),
    ]


# --- lines --------------------------------------------------------------------------------------------------


def test_refusals_of_a_user_above_the_rate_are_counted_in_one_line(lines: Lines) -> None:
    rig = rig_with(user("me", "secret", "read a"))
    client, other = logged_in(rig, "me", origin=HERE), logged_in(rig, "me", origin=Origin("10.0.0.8", "2"))
    lines()
    for _ in range(audit.AUDIT_BURST + 50):
        client.refused(control.ResourceDescribe(resource="b"))
    other.refused(control.ResourceDescribe(resource="b"))
    client.refused(control.ResourceDelete(resource="a"))
    assert len(lines()) == audit.AUDIT_BURST + 1
    rig.sleep(audit.AUDIT_SUMMARY_S)
    assert lines() == [
        {
            "level": "WARNING",
            "event": "left-out",
            "address": "10.0.0.7",
            "user": "me",
            "of": "not-authorized",
            "lines": 51,
        }
    ]
    rig.sleep(audit.AUDIT_SUMMARY_S)
    assert lines() == []


def test_refusals_of_one_user_do_not_hide_those_of_another_at_the_same_address(lines: Lines) -> None:
    rig = rig_with(user("me", "secret", "read a"), user("you", "secret", "read a"))
    noisy, other = logged_in(rig, "me", origin=HERE), logged_in(rig, "you", origin=Origin("10.0.0.7", "2"))
    for _ in range(audit.AUDIT_BURST + 50):
        noisy.refused(control.ResourceDescribe(resource="b"))
    lines()
    other.refused(control.ResourceDescribe(resource="b"))
    assert [(x["event"], x["user"]) for x in lines()] == [("not-authorized", "you")]


def test_changes_are_never_omitted(lines: Lines) -> None:
    """Deletions that matter cannot be hidden behind a burst of others."""
    rig = rig_with(user("me", "secret", "manage .*", "write .*"))
    client = logged_in(rig, "me", origin=HERE)
    names = [f"r{number}" for number in range(audit.AUDIT_BURST + 20)]
    for name in names:
        client.create(name)
    lines()
    for name in names:
        client.ask(control.ResourceDelete(resource=name), control.Ok)
    assert [x["resource"] for x in lines()] == names


def test_a_change_names_everything_that_it_changed(lines: Lines) -> None:
    written = Audit(lambda: 0.0)
    stages = [str(number) for number in range(2 * audit.AUDIT_NAMES + 1)]
    written.write(AuditEvent.STAGES_ABORTED, "10.0.0.7", "me", stages=stages)
    found = lines()
    assert [len(x["stages"]) for x in found] == [audit.AUDIT_NAMES, audit.AUDIT_NAMES, 1]
    assert [name for x in found for name in x["stages"]] == stages
    assert {x["user"] for x in found} == {"me"}


def test_separately_counted_causes_are_bounded(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AUDIT_LEFT_OUT", 2)
    monkeypatch.setattr(audit, "AUDIT_BURST", 0)
    written = Audit(lambda: 0.0)
    for address in "abcd":
        written.write(AuditEvent.LOGIN_REFUSED, address)
    written.catch_up()
    assert [(x["address"], x["lines"]) for x in lines()] == [("a", 1), ("b", 1), ("others", 2)]


def test_a_line_has_no_line_break_and_a_bounded_length(
    lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    written = Audit(lambda: 0.0)
    names = [str(n) for n in range(1_000)]
    written.write(AuditEvent.NOT_AUTHORIZED, "a\nb", stages=names, reason="x" * 100_000)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert json.loads(record.getMessage().split("address=")[1].split(" ")[0]) == "a\nb"
    assert len(record.getMessage()) < 2_000
    assert lines()[0]["stages"][-1] == "and 990 more"


def test_lines_contain_no_secret(lines: Lines) -> None:
    rig = rig_with(user("me", "hunter22"), plain_without_encryption=True)
    for name, password in (("me", "hunter23"), ("hunter24", "me"), ("me", "hunter22")):
        try:
            client = logged_in(rig, name, password, HERE)
        except Refused:
            continue
        client.create("a")
        lease = client.writer("a")
        client.close_lease(lease)
        written = json.dumps(lines())
        assert "hunter2" not in written
        assert lease.lease not in written
        assert client.session not in (None, "")
        assert str(client.session) not in written


def test_the_document_lists_every_event() -> None:
    document = (Path(__file__).parents[5] / "SECURITY.md").read_text(encoding="utf-8")
    assert [event for event in AuditEvent if f"`{event.value}`" not in document] == []
