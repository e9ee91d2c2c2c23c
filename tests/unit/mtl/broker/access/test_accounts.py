from __future__ import annotations

import pytest
from msgspec import structs

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.access.accounts import ON_RESOURCES, Accounts, Changes, Right
from mtl.protocol.sasl.scram import proves
from mtl.storage.records import RecordDamage, UserRecord
from mtl.storage.unreadable import Unreadable
from tests.support.users import ITERATIONS, user

READ, WRITE = frozenset({Right.READ}), frozenset({Right.WRITE})


def accounts(*users: UserRecord) -> Accounts:
    made = Accounts(b"secret", ["anonymous"])
    made.replace(users)
    return made


# --- identity -----------------------------------------------------------------------------------------------


def test_verifier_of_a_user_is_the_stored_one() -> None:
    known = accounts(user("etl", "secret"))
    assert proves("secret", known.verifier("etl"))
    assert not proves("wrong", known.verifier("etl"))


def test_verifier_of_an_unknown_user_is_indistinguishable_from_a_real_one() -> None:
    """A client sees salt and iterations: constant per name, of the same size, and from the same range."""
    known = accounts(user("etl", "secret"), user("keyed"))
    for name in ("nobody", "keyed", ""):
        made_up = known.verifier(name)
        assert made_up == known.verifier(name) == accounts(user("etl", "secret")).verifier(name)
        assert len(made_up.salt) == len(known.verifier("etl").salt)
        assert len(made_up.stored_key) == len(made_up.server_key) == 32
        assert made_up.iterations == ITERATIONS
        assert made_up.salt != known.verifier(f"{name}!").salt
    assert Accounts(b"other").verifier("nobody").salt != known.verifier("nobody").salt
    assert accounts().verifier("nobody").iterations == limits.SCRAM_ITERATIONS


def test_a_key_belongs_to_one_user() -> None:
    known = accounts(user("etl", keys=["k1", "k2"]), user("bi", keys=["k3"]))
    assert [known.owner(k) for k in ("k1", "k2", "k3", "k4", "")] == ["etl", "etl", "bi", None, None]


def test_a_change_of_records_lists_users_with_changed_proof_or_grants() -> None:
    a, b, c, d = (user(n, "secret", "read x", keys=[n]) for n in "abcd")
    known = accounts(a, b, c, d)
    changes = known.replace(
        [a, user("b", "other", "read x", keys=["b"]), user("c", "secret", "read y", keys=["c"])]
    )
    assert changes == Changes(frozenset({"b", "d"}), frozenset({"c", "d"}), frozenset({"d"}))
    changes = known.replace([user("a", "secret", "read x", keys=["a", "e"])])
    assert "a" in changes.proof, "one of its keys might have been taken away"
    assert known.replace([structs.replace(a, generation=1)]).ended == {"a"}
    assert len(known) == 1


# --- rights -------------------------------------------------------------------------------------------------


def test_a_grant_matches_whole_names_in_one_virtual_host_for_one_right() -> None:
    known = accounts(user("etl", None, "read orders.*", "write raw"))
    names = ["orders", "orders.eu", "my-orders", "raw", "raw2"]
    assert known.may("etl", "/", READ, names) == [True, True, False, False, False]
    assert known.may("etl", "/", WRITE, names) == [False, False, False, True, False]
    assert known.may("etl", "/", ON_RESOURCES, names) == [True, True, False, True, False]
    assert known.may("etl", "other", READ, names) == [False] * 5
    assert known.may("nobody", "/", READ, names) == [False] * 5
    assert known.may("etl", "/", READ, []) == []


def test_a_virtual_host_is_entered_by_users_with_a_grant_in_it() -> None:
    known = accounts(user("etl", None, "read x", vhost="a"))
    assert [known.enters("etl", v) for v in ("a", "b")] == [True, False]
    assert known.enters("anonymous", "b")


def test_unlimited_users_need_no_grant() -> None:
    known = accounts(user("etl"))
    assert known.may("anonymous", "/", READ, ["x"]) == [True]
    assert [known.exists(n) for n in ("anonymous", "etl", "x")] == [True, True, False]


def test_decisions_are_cached_until_records_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_RIGHTS_REMEMBERED", 3)
    known = accounts(user("etl", None, "read a.*"))
    for _ in range(2):
        assert known.may("etl", "/", READ, ["a", "b", "ab", "c"]) == [True, False, True, False]
        assert known.may("etl", "/", READ, ["d", "a"]) == [False, True]
    known.replace([user("etl", None, "read d")])
    assert known.may("etl", "/", READ, ["d", "a"]) == [True, False]


def test_a_grant_with_an_invalid_pattern_grants_nothing() -> None:
    assert accounts(user("etl", None, "read (")).may("etl", "/", READ, ["(", "x"]) == [False, False]


def test_a_users_own_names_begin_with_its_name_and_a_dot() -> None:
    known = accounts(user("a", None, "read x"), user("a.b", None, "read x", "group shared.*"))
    names = ["a.g", "a.b.g", "a.bc.g", "a.b.", "a", "a.", "b.g", "anonymous.g", ".g", "shared.g"]
    group = frozenset({Right.GROUP})
    assert known.may("a", "/", group, names) == [yes == "a" for yes in "a-a--a----"]
    assert known.may("a.b", "/", group, names) == [yes == "b" for yes in "-b-b-----b"]
    assert known.may("anonymous", "/", group, names) == [True] * 10
    assert known.may("nobody", "/", group, ["nobody.g"]) == [False], "the user may have been removed"
    assert known.may("a", "/", READ, ["a.g"]) == [False], "no user owns names of resources"
    known.replace([user("a", None, "read x")])
    assert known.may("a", "/", group, ["a.b.g"]) == [True]


def test_names_of_a_user_with_a_damaged_record_belong_to_no_other_user() -> None:
    damaged = Unreadable([RecordDamage("user", "a.b", "flipped")])
    known = Accounts(b"secret", (), damaged)
    known.replace([user("a", None, "read x")])
    assert known.may("a", "/", frozenset({Right.WRITER}), ["a.b.w", "a.w"]) == [False, True]
