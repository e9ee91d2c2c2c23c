from __future__ import annotations

import pytest

from mtl.client.settings import Settings
from mtl.errors import OptionError


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "localhost:5975"},
        {"request_timeout": 0.0},
        {"retry_deadline": -1.0},
        {"heartbeat": -1.0},
        {"user": "me"},
        {"password": "secret"},
    ],
)
def test_what_cannot_work_is_an_option_error(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Settings(**wrong)  # type: ignore[arg-type]


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(Settings(user="me", password="secret"))
