"""RFC 11 and PROTOCOL.md on the wire, by a client without code of the project: requests and replies."""

from __future__ import annotations

from typing import Any

import pytest
import zmq

from mtl.testing import RunningBroker
from tests.support.minimal_client import MinimalClient, minimal_client, written


@pytest.mark.requirement("MTL-04", "MTL-20")
def test_the_reply_has_the_whole_envelope_of_the_request(running: RunningBroker) -> None:
    """REQ_CORRELATE adds a frame before the delimiter, and drops replies without it."""
    client = MinimalClient(running.endpoint, {zmq.REQ_CORRELATE: 1, zmq.REQ_RELAXED: 1})
    client.open("log")
    client.req.send_multipart([b"Resource.List", b"{}"])  # its answer is dropped
    assert client.ask("Resource.Describe", resource="no such")[0] == 404
    client.close()


@pytest.mark.requirement("MTL-19", "MTL-39")
def test_command_names_are_case_insensitive(running: RunningBroker) -> None:
    client = MinimalClient(running.endpoint)
    protocol = {"name": "MTL", "version": 1}
    assert client.ask("CONNECTION.OPEN", protocol=protocol)[0] == 201
    assert client.ask("connection.authorize", mechanism="anonymous", response="")[0] == 201
    assert client.ask("cONNECTION.pROFILE", profile="TeSt")[0] == 200
    assert client.ask("connection.READER", resources=[], confirm="none")[0] == 202
    assert client.ask("Connection.writer", resources=[], confirm="none")[0] == 202
    client.close()


@pytest.mark.requirement("MTL-21", "MTL-45", "MTL-52")
def test_a_session_belongs_to_its_socket(running: RunningBroker) -> None:
    """Another REQ has no session: its requests are refused with the missing step."""
    client, stranger = MinimalClient(running.endpoint), MinimalClient(running.endpoint)
    assert client.ask("Connection.Profile", profile="test")[1]["reason"] == "not-open"
    assert client.ask("Connection.Open", protocol={"name": "MTL", "version": 1})[0] == 201
    code, refused = client.ask("Connection.Writer", resources=[], confirm="none")
    assert (code, refused["reason"]) == (400, "no-profile")
    assert client.ask("Connection.Profile", profile="test")[0] == 200
    assert client.ask("Connection.Writer", resources=[], confirm="none")[0] == 202
    code, refused = stranger.ask("Connection.Writer", resources=[], confirm="none")
    assert (code, refused["status"], refused["reason"]) == (400, "Bad Request", "not-open")
    client.close()
    stranger.close()


@pytest.mark.requirement("MTL-22", "MTL-23", "MTL-36", "MTL-38", "MTL-49", "MTL-52")
@pytest.mark.parametrize(
    ("command", "body", "status", "reason"),
    [
        ("Connection.Open", {"protocol": {"name": "AMQP", "version": 1}}, 400, "bad-arguments"),
        ("Connection.Open", {"protocol": {"name": "MTL", "version": 2}}, 501, "unsupported"),
        ("Connection.Profile", {"profile": "profile name"}, 400, "unknown-profile"),
        ("Connection.Reader", {"resources": "a"}, 400, "bad-arguments"),
        ("Connection.Reader", {"resources": ["no such"], "confirm": "none"}, 404, "unknown-resource"),
        ("Connection.Writer", {"resources": [], "confirm": "none | full"}, 501, "unsupported"),
        ("Connection.Close", {}, 501, "unknown-command"),
    ],
)
def test_impossible_requests_are_refused(
    client: MinimalClient, command: str, body: dict[str, Any], status: int, reason: str
) -> None:
    code, refused = client.ask(command, **body)
    assert (code, refused["reason"]) == (status, reason)


@pytest.mark.requirement("MTL-23")
def test_virtual_hosts_are_separate(running: RunningBroker, client: MinimalClient) -> None:
    client.ask("Resource.Create", resource="of the first")
    with minimal_client(running.endpoint, virtual_host="test-env") as other:
        assert other.ask("Resource.List")[1]["resources"] == []
    opening = {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "home"}
    assert client.ask("Connection.Open", **opening)[1]["reason"] == "unknown-virtual-host"


@pytest.mark.requirement("MTL-09")
def test_unknown_members_are_ignored(running: RunningBroker) -> None:
    client = MinimalClient(running.endpoint)
    more = {"x-later": [1, {"a": None}], "": 2}
    protocol = {"name": "MTL", "version": 1, "dialect": "later"}
    assert client.ask("Connection.Open", protocol=protocol, **more)[0] == 201
    assert client.ask("Connection.Profile", profile="test", **more)[0] == 200
    assert client.ask("Connection.Reader", resources=[], confirm="none", **more)[0] == 202
    client.close()


@pytest.mark.requirement("MTL-35")
def test_another_selection_of_a_profile_does_not_change_leases(running: RunningBroker) -> None:
    with minimal_client(running.endpoint, "test") as client:
        reader = client.lease("Reader", resources=[], confirm="none")
        reader.summon("resource")
        assert client.ask("Connection.Profile", profile="log")[0] == 200
        written(client, "re-selected", b"x")
        assert client.ask("Connection.Profile", profile="test")[0] == 200
        client.lease("Writer", resources=[], confirm="none").content(1, b"still there")
        assert reader.read()[3] == b"still there"


@pytest.mark.requirement("MTL-05", "MTL-50", "MTL-51")
def test_an_ill_formed_request_is_dropped_without_affecting_others(
    running: RunningBroker, client: MinimalClient
) -> None:
    with minimal_client(running.endpoint, "test") as other:
        client.req.setsockopt(zmq.RCVTIMEO, 200)
        client.req.send_multipart([b"Connection.Open", b"no JSON"])
        with pytest.raises(zmq.Again):
            client.req.recv_multipart()
        assert other.ask("Connection.Profile", profile="log")[0] == 200
