"""The rule for sockets that other machines reach. The configurations of broker and doors test its use."""

from __future__ import annotations

import pytest

from mtl.errors import OptionError
from mtl.net.exposure import check_exposure, is_local
from tests.support.texts import in_order


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("*", False),
        ("0.0.0.0", False),
        ("::", False),
        ("eth0", False),
        ("192.168.1.1", False),
        ("localhost.example.org", False),
    ],
)
def test_a_loopback_address_is_local(host: str, local: bool) -> None:
    assert is_local(host) is local


def test_credentials_and_encryption_are_necessary() -> None:
    with pytest.raises(OptionError, match=in_order("tcp://x:1", "credentials", "users")):
        check_exposure("tcp://x:1", "users", "a key")
    with pytest.raises(OptionError, match=in_order("tcp://x:1", "encrypted", "a key", "insecure")):
        check_exposure("tcp://x:1", None, "a key")
    check_exposure("tcp://x:1", None, None)
