from __future__ import annotations

import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import DEFAULTS, Quota, Quotas, QuotaSettings
from mtl.errors import Refused
from mtl.wire.control import OVERLOADED, QUOTA


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Ten leases for all, four for each user; `admin` has no quota."""
    monkeypatch.setattr(broker_limits, "MAX_LEASES", 10)
    settings = QuotaSettings(DEFAULTS | {Quota.LEASES: 4})
    return Pool(Quotas(settings, lambda principal: principal == "admin"), Quota.LEASES)


def test_a_user_at_its_quota_leaves_the_rest_to_others(pool: Pool) -> None:
    pool.add("me", 4)
    with pytest.raises(Refused) as caught:
        pool.check("me")
    assert (caught.value.status, caught.value.reason) == (403, QUOTA)
    pool.check("you", 4)
    pool.check("admin", 6)
    pool.remove("me")
    pool.check("me")


def test_above_the_total_everybody_is_refused_with_its_name(pool: Pool) -> None:
    pool.add("", 8)
    pool.add("me", 2)
    for principal in ("me", "you", "admin"):
        with pytest.raises(Refused, match="has 10 leases, and its limit MAX_LEASES is 10") as caught:
            pool.check(principal)
        assert (caught.value.status, caught.value.reason) == (503, OVERLOADED)
        pool.check(principal, 0)
    pool.remove("", 8)
    pool.check("you")
    assert (pool.used, pool.of("me"), pool.of("")) == (2, 2, 0)


def test_an_owner_without_uses_is_not_kept(pool: Pool) -> None:
    pool.add("me")
    pool.remove("me")
    assert not pool._of_owner


def test_the_excess_of_a_user_and_of_all(pool: Pool) -> None:
    pool.add("me", 6)
    assert (pool.excess("me"), pool.excess("you"), pool.excess("admin")) == (2, -4, -4)
    pool.add("admin", 7)
    assert (pool.excess("me"), pool.excess("you"), pool.excess("admin")) == (3, 3, 3)


def test_clients_before_their_log_in_share_one_quota(pool: Pool) -> None:
    pool.add("", 5)
    assert pool.excess("") == 1
