"""The configuration: refusals, and that conf/broker.toml lists every member with its default."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mtl.broker.quotas.quotas import DEFAULTS, Quota
from mtl.broker.runtime.config import AuthenticationConfig, BrokerConfig, CurveConfig, load
from mtl.errors import OptionError

EXAMPLE = Path(__file__).parents[5] / "conf" / "broker.toml"


# --- conf/broker.toml ---------------------------------------------------------------------------------------


def members(kind: type[msgspec.Struct] = BrokerConfig) -> dict[str, Any]:
    """Every member of the configuration with its default as a TOML value; the members of a table in a nested dict."""

    def value(default: Any) -> Any:
        if isinstance(default, msgspec.Struct):
            return members(type(default))
        return list(default) if isinstance(default, tuple) else default

    def default(field: msgspec.structs.FieldInfo) -> Any:
        return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()

    return {f.encode_name: value(default(f)) for f in msgspec.structs.fields(kind)}


def test_the_example_is_commented_out_and_changes_nothing() -> None:
    documented = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    assert all(table == {} for table in documented.values()), documented
    assert load(EXAMPLE) == BrokerConfig()


def test_the_example_names_every_member_with_its_default() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    settings = [x.removeprefix("# ") for x in lines if re.match(r"(# [a-z-]+ = |\[)", x)]
    assert tomllib.loads("\n".join(settings)) == members()


def test_the_example_explains_each_member() -> None:
    """A sentence comes before every member."""
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.match(r"# [a-z-]+ = ", line):
            assert lines[number - 1].startswith("# "), line
            assert lines[number - 1].rstrip().endswith("."), line


# --- loading ------------------------------------------------------------------------------------------------


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'endpoint = "tcp://127.0.0.1:1"\ndata = "there"\nauto-create = ["a*", "b"]\n')
    config = load(path, endpoint="tcp://127.0.0.1:2", data=None)
    assert (config.endpoint, config.data) == ("tcp://127.0.0.1:2", "there")
    assert config.auto_create == ("a*", "b")
    assert config.virtual_hosts == ("/",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("endpiont = 'tcp://127.0.0.1:1'", "endpiont"),
        ("endpoint = 1", "endpoint"),
        ("endpoint = 'http://x'", "endpoint"),
        ("virtual-hosts = []", "virtual-hosts"),
        ("heartbeat = 0", "heartbeat"),
        ("lease-unbound = -1", "lease-unbound"),
        ("segment-bytes = 0", "segment-bytes"),
        ("packed-port = 70000", "packed-port"),
        ("plain-port = -1", "plain-port"),
        ("shared-socket = true\npacked-port = 5976", "packed-port"),
        ("shared-socket = true\nplain-port = 5976", "plain-port"),
        ("auto-create = 'a*'", "auto-create"),
        ("anonymous = false", "anonymous"),
        ("[authentication]\nanonymous = 'all'", "anonymous"),
        ("[authentication]\nmechanisms = ['KERBEROS']", "KERBEROS"),
        ("[authentication]\nattempts = 0", "attempts"),
        ("low-watermark = -1", "low-watermark"),
        ("[quotas]\nlaeses = 1", "laeses"),
        ("[quotas]\nleases = 0", "leases of quotas"),
        ("[quotas]\nconnections-at-once = 0", "connections-at-once"),
        ("[quotas]\nconnections-open = 0", "connections-open"),
        ("[quotas]\nconnections-per-second = 0.0", "connections-per-second"),
        ("[quotas.users.etl]\nlaeses = 1", "laeses"),
        ("[quotas.users.etl]\nleases = 0", "leases of etl"),
        ("no toml", "not TOML"),
    ],
)
def test_mistakes_are_refused_with_the_member(tmp_path: Path, text: str, names: str) -> None:
    with pytest.raises(OptionError, match=names):
        load(write(tmp_path, text))


def test_quotas_for_all_users_and_for_single_ones(tmp_path: Path) -> None:
    text = "[quotas]\nwriter-names = 7\n[quotas.users.etl]\nstage-bytes = 9\n"
    quotas = load(write(tmp_path, text)).quotas.settings
    assert quotas.of_every_user == DEFAULTS | {Quota.WRITER_NAMES: 7}
    assert quotas.users == {"etl": {Quota.STAGE_BYTES: 9}}


def test_the_rate_of_connections_per_address(tmp_path: Path) -> None:
    text = "[quotas]\nconnections-at-once = 2\nconnections-per-second = 0.5\n"
    now = 0.0
    pace = load(write(tmp_path, text)).quotas.pace(lambda: now)
    assert [pace.admits("a") for _ in range(3)] == [True, True, False]
    now = 2.0
    assert [pace.admits("a") for _ in range(2)] == [True, False]


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(OptionError, match="cannot read /nowhere"):
        load(Path("/nowhere"))


# --- exposure -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.8.9.1:1", True),
        ("tcp://localhost:1", True),
        ("tcp://[::1]:1", True),
        ("ipc:///tmp/x", True),
        ("tcp://*:1", False),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("tcp://eth0:1", False),
        ("tcp://192.168.1.1:1", False),
        ("tcp://localhost.example.org:1", False),
    ],
)
def test_an_endpoint_that_other_machines_reach_needs_insecure(endpoint: str, local: bool) -> None:
    config = load(None, endpoint=endpoint)
    if local:
        config.check_exposure()
    else:
        with pytest.raises(OptionError, match="insecure"):
            config.check_exposure()
    load(None, endpoint=endpoint, insecure=True).check_exposure()
    closed: dict[str, Any] = {"authentication": {"anonymous": False}}
    load(None, endpoint=endpoint, curve={"key-file": "broker.key"}, **closed).check_exposure()
    if not local:
        with pytest.raises(OptionError, match="encrypted"):
            load(None, endpoint=endpoint, **closed).check_exposure()


@pytest.mark.parametrize(
    ("members", "extra", "right"),
    [
        ({}, False, True),
        ({"authentication": {"anonymous": "granted"}}, False, True),
        ({"authentication": {"anonymous": False}}, True, True),
        ({"authentication": {"anonymous": False}}, False, False),
        ({"authentication": {"anonymous": False}, "curve": {"key-file": "x"}}, False, True),
        ({"authentication": {"anonymous": False, "mechanisms": ["EXTERNAL"]}}, True, False),
        ({"authentication": {"anonymous": False, "mechanisms": ["PLAIN"]}}, True, False),
        (
            {
                "authentication": {
                    "anonymous": False,
                    "mechanisms": ["PLAIN"],
                    "plain-without-encryption": True,
                }
            },
            True,
            True,
        ),
    ],
)
def test_a_configuration_without_any_possible_log_in_is_refused(
    monkeypatch: pytest.MonkeyPatch, members: dict[str, Any], *, extra: bool, right: bool
) -> None:
    monkeypatch.setattr("mtl.broker.runtime.config.scram_available", lambda: extra)
    config = load(None, **members)
    if right:
        config.check_logins()
    else:
        with pytest.raises(OptionError, match="scramp" if not extra else "no user could log in"):
            config.check_logins()


def test_data_may_be_memory() -> None:
    assert BrokerConfig(data="memory:").in_memory
    assert not BrokerConfig(data="./memory:").in_memory
    with pytest.raises(OptionError, match="memory-bytes sets its size"):
        BrokerConfig(data="memory:1GiB")
    with pytest.raises(OptionError, match="memory-bytes has to be above 0"):
        BrokerConfig(memory_bytes=0)


@pytest.mark.parametrize(
    "more",
    [
        {"authentication": AuthenticationConfig(anonymous=False)},
        {"authentication": AuthenticationConfig(anonymous="granted")},
        {"curve": CurveConfig(key_file="key", clients="known")},
    ],
)
def test_a_broker_in_memory_has_no_users(more: dict[str, Any]) -> None:
    BrokerConfig(data="memory:").check_logins()
    with pytest.raises(OptionError, match="has no users"):
        BrokerConfig(data="memory:", **more).check_logins()
