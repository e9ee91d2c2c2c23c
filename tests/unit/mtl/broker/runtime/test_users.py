from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl import limits
from mtl.broker.runtime.users import MAX_USER_NAME, Users, new_password
from mtl.errors import Damaged, LocalError, OptionError
from mtl.protocol.sasl.scram import Verifier, proves
from mtl.storage.records import GrantRecord

READ_ALL = GrantRecord("/", "read", ".*")


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    with Users(tmp_path / "data") as users:
        yield users


def test_a_user_is_added_once_and_removed(users: Users) -> None:
    users.add("etl", None, ["k1"])
    with pytest.raises(OptionError, match="already"):
        users.add("etl", None, [])
    assert [(u.name, u.keys, u.grants) for u in users.all()] == [("etl", ("k1",), ())]
    users.remove("etl")
    assert users.all() == []
    with pytest.raises(OptionError, match="no user 'etl'"):
        users.remove("etl")


def test_a_user_with_a_damaged_record_can_only_be_removed(users: Users, tmp_path: Path) -> None:
    users.add("etl", None, ["k1"])
    db = sqlite3.connect(tmp_path / "data" / "broker.db")
    db.execute("UPDATE record SET value = x'00' WHERE kind = 'user'")
    db.commit()
    db.close()
    assert users.all() == []
    with pytest.raises(Damaged, match="user etl"):
        users.add_key("etl", "k2")
    users.remove("etl")
    users.add("etl", None, ["k2"])
    assert [u.keys for u in users.all()] == [("k2",)]


@pytest.mark.parametrize(
    "name", ["", "anonymous", "a\0b", "x" * 256, "\ufb01nance", "fin\u200bance", "a\u3164", "Jose\u0301"]
)
def test_invalid_user_names_are_refused(users: Users, name: str) -> None:
    with pytest.raises(OptionError):
        users.add(name, None, [])


def test_a_password_is_stored_only_as_verifier(users: Users, tmp_path: Path) -> None:
    users.add("etl", new_password("a secret", lambda n: b"s" * n, 4096), [])
    [kept] = [u.password for u in users.all()]
    assert kept is not None
    assert proves("a secret", Verifier(kept.salt, kept.iterations, kept.stored_key, kept.server_key))
    assert all(b"a secret" not in f.read_bytes() for f in (tmp_path / "data").iterdir())
    users.set_password("etl", None)
    assert users.all()[0].password is None
    with pytest.raises(LocalError):
        new_password("", os.urandom, 1)


def test_a_key_belongs_to_one_user(users: Users) -> None:
    users.add("etl", None, [])
    users.add("bi", None, [])
    users.add_key("etl", "k1")
    users.add_key("etl", "k1")
    with pytest.raises(OptionError, match="'etl'"):
        users.add_key("bi", "k1")
    with pytest.raises(OptionError, match="'etl'"):
        users.add("more", None, ["k1"])
    users.remove_key("etl", "k1")
    users.add_key("bi", "k1")
    with pytest.raises(OptionError, match="no such key"):
        users.remove_key("etl", "k1")


def test_a_user_name_is_short_enough_for_names_derived_from_it(users: Users) -> None:
    users.add("e" * MAX_USER_NAME, None, [])
    with pytest.raises(OptionError, match="at most 128"):
        users.add("\N{LATIN SMALL LETTER E WITH ACUTE}" * 65, None, [])
    assert MAX_USER_NAME + len(".write-") + 32 < limits.MAX_SHORT_STRING


def test_grants_are_granted_and_revoked_with_the_same_arguments(users: Users) -> None:
    users.add("etl", None, [])
    write = GrantRecord("other", "write", "a.*")
    users.grant("etl", [READ_ALL])
    users.grant("etl", [READ_ALL, write])
    assert users.all()[0].grants == (READ_ALL, write)
    users.revoke("etl", [READ_ALL])
    with pytest.raises(OptionError, match="no grant of read"):
        users.revoke("etl", [READ_ALL])
    assert users.all()[0].grants == (write,)
    users.revoke("etl", None)
    assert users.all()[0].grants == ()
    with pytest.raises(OptionError, match="RE2"):
        users.grant("etl", [GrantRecord("/", "read", "(")])
    with pytest.raises(OptionError, match="no user"):
        users.grant("nobody", [READ_ALL])


def test_anonymous_can_be_granted_rights(users: Users) -> None:
    users.grant("anonymous", [READ_ALL])
    assert [u.name for u in users.all()] == ["anonymous"]


def test_a_data_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="data directory"):
        Users(tmp_path / "file")


def test_a_broker_in_memory_has_no_users() -> None:
    with pytest.raises(OptionError, match="has no users"):
        Users(Path("memory:"))


def test_a_new_password_ends_sessions_unless_they_are_kept(users: Users) -> None:
    users.add("etl", None, [])
    password = new_password("a secret", lambda n: b"s" * n, 4096)
    users.set_password("etl", password, keep_sessions=True)
    assert [u.generation for u in users.all()] == [0]
    users.set_password("etl", password)
    assert [u.generation for u in users.all()] == [1]
