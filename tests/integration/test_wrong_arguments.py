"""Wrong arguments of every public function of both clients: an error of the caller, at once, and the client continues.

The functions and their parameters are those of the classes; a new one is tested without a change here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import mtl
import mtl.aio
import mtl.testing
from mtl.client.aio.connection import Connection as AioConnection
from mtl.errors import LocalError, Malformed, Refused, Unreachable

WRONG: tuple[Any, ...] = (
    b"orders",
    ["orders"],
    [b"orders"],
    7,
    -1,
    1 << 70,
    1.5,
    float("nan"),
    {"orders": b"x"},
    object(),
    "\x00",
    "x" * 300,
)
"""Each value is wrong for most parameters. For the others it is a valid value, or one that the broker refuses."""

REQUIRED: dict[str, Any] = {
    "resource": "orders",
    "resources": ["orders"],
    "names": ["orders"],
    "name": "orders",
    "group": "g",
    "queue": "q",
    "application": "a",
    "version": 1,
    "stages": ["s"],
    "start": 1,
    "contents": 1,
    "octets": 1,
    "timestamp_us": 1,
    "after": {},
    "wait": 0.0,
    "sequence": 1,
    "number": 0,
    "body": b"x",
    "pack": b"x",
    "count": 1,
    "bodies": [b"x"],
    "tables": [b"\0\0\0\0"],
}
"""The values of the other parameters that a call needs."""

ENDING = {
    "close",
    "drop",
    "abandon",
    "leave",
    "seal",
    "some",
    "batches",
    "next",
    "settled",
    "ask",
    "watch",
    "request",
}
"""Functions that end their object, or wait for contents; the last two get their own cases."""


def functions(kind: type) -> list[tuple[str, str]]:
    """The public methods of a class, and their parameters."""
    return [
        (name, parameter)
        for name, method in inspect.getmembers(kind, callable)
        if not name.startswith("_") and name not in ENDING
        for parameter in inspect.signature(method).parameters
        if parameter not in {"self", "stage"}
    ]


def arguments(method: Callable[..., Any], parameter: str, value: Any) -> dict[str, Any]:
    """The arguments of a call whose `parameter` is wrong."""
    needed = {
        name: REQUIRED[name]
        for name, described in inspect.signature(method).parameters.items()
        if described.default is described.empty and name in REQUIRED
    }
    return {**needed, parameter: value}


ALLOWED = (TypeError, ValueError, LocalError, Refused, Malformed)
"""The errors of a wrong argument. `ClientFailed`, `Unreachable` or a hang would be a value that reached the loop."""


def attempt(method: Callable[..., Any], parameter: str, value: Any) -> None:
    # -1 second is a wait that is over at once
    allowed = (*ALLOWED, Unreachable, OverflowError) if parameter == "timeout" else ALLOWED
    try:
        opened = method(**arguments(method, parameter, value))
    except allowed:
        return
    if hasattr(opened, "close"):
        opened.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with mtl.testing.broker(data="memory:") as broker:
        yield broker.endpoint


def test_of_the_blocking_client(endpoint: str) -> None:
    with mtl.connect(endpoint, request_timeout=20) as other:
        with mtl.connect(endpoint, request_timeout=20) as connection:
            connection.create_resource("orders", exist_ok=True)
            for name, parameter in functions(mtl.Connection):
                for value in WRONG:
                    attempt(getattr(connection, name), parameter, value)
            with (
                connection.reader("orders") as reader,
                connection.consumer("orders") as consumer,
                connection.writer("orders") as writer,
                connection.writer("orders", packed=True) as packed,
            ):
                for user in (reader, consumer, writer, packed):
                    for name, parameter in functions(type(user)):
                        for value in WRONG:
                            attempt(getattr(user, name), parameter, value)
                assert writer.error is packed.error is reader.error is None
            assert connection.describe(["orders"])["orders"].next >= 1
        assert other.ready().profiles


CASES: dict[str, Callable[[mtl.Connection], object]] = {
    "reader-octets": lambda c: c.reader(b"orders"),  # type: ignore[arg-type]
    "reader-list": lambda c: c.reader(["orders"]),  # type: ignore[arg-type]
    "reader-number": lambda c: c.reader(7),  # type: ignore[arg-type]
    "reader-window": lambda c: c.reader("orders", window_bytes="many"),  # type: ignore[arg-type]
    "writer-octets": lambda c: c.writer(b"orders"),  # type: ignore[arg-type]
    "writer-list-of-octets": lambda c: c.writer([b"orders"]),  # type: ignore[list-item]
    "consumer-number": lambda c: c.consumer(7),  # type: ignore[arg-type]
    "request": lambda c: c.request(object()),  # type: ignore[arg-type]
    "patience": lambda c: c.request(mtl.wire.control.ResourceList(), patience="1"),  # type: ignore[arg-type]
    "watch": lambda c: c.watch(b"orders", since="b.1", wait=0.1),  # type: ignore[arg-type]
    "watch-since": lambda c: c.watch("orders", since=1, wait=0.1),  # type: ignore[arg-type]
    "own-name": lambda c: c.own_name(7),  # type: ignore[arg-type]
    "boolean": lambda c: c.reader("orders", start=True),
    "confirm": lambda c: c.reader("orders").confirm("1"),  # type: ignore[arg-type]
    "summon": lambda c: c.consumer().summon(b"orders"),  # type: ignore[arg-type]
    "dismiss": lambda c: c.consumer().dismiss(7),  # type: ignore[arg-type]
    "body": lambda c: c.writer("orders").send(7),  # type: ignore[arg-type]
    "text-body": lambda c: c.writer("orders").send("text"),  # type: ignore[arg-type]
    "properties": lambda c: c.writer("orders").send(b"", [("a", 1)]),  # type: ignore[arg-type]
    "send-to": lambda c: c.writer("orders").send(b"", resource=b"orders"),  # type: ignore[arg-type]
    "pack": lambda c: c.writer("orders", packed=True).send_pack(7, 1),
    "flush": lambda c: c.writer("orders").flush("1"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_another_type_is_a_type_error(case: Callable[[mtl.Connection], object], endpoint: str) -> None:
    with mtl.connect(endpoint) as connection:
        connection.create_resource("orders", exist_ok=True)
        with pytest.raises(TypeError):
            case(connection)
        assert connection.describe()


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint": 7},
        {"endpoint": b"tcp://127.0.0.1:5975"},
        {"request_timeout": "1"},
        {"profile": 3},
        {"user": b"ada", "password": "secret"},
        {"local_reads": "no"},
        {"password_file": 3},
        {"heartbeat": True},
    ],
)
def test_options_of_another_type(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        mtl.connect(**options)
    with pytest.raises(TypeError):
        mtl.aio.connect(**options)


@pytest.mark.parametrize("name", ["request_timeout", "retry_deadline", "heartbeat"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_times_are_finite(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is .*finite"):
        mtl.connect(**{name: value})  # type: ignore[arg-type]  # the table has names


def test_a_very_long_time_is_a_time(endpoint: str) -> None:
    with mtl.connect(endpoint, request_timeout=1e9, retry_deadline=1e9) as connection:
        assert connection.ready().profiles


def test_of_the_asyncio_client(endpoint: str) -> None:
    async def attempt_it(method: Callable[..., Any], parameter: str, value: Any) -> None:
        try:
            opening = method(**arguments(method, parameter, value))
            opened = await opening if isinstance(opening, Awaitable) else opening
        except ALLOWED:
            return
        if hasattr(opened, "close"):
            await opened.close()

    async def main() -> None:
        async with mtl.aio.connect(endpoint, request_timeout=20) as connection:
            await connection.create_resource("orders", exist_ok=True)
            for name, parameter in functions(AioConnection):
                for value in WRONG:
                    await attempt_it(getattr(connection, name), parameter, value)
            async with (
                connection.reader("orders") as reader,
                connection.consumer("orders") as consumer,
                connection.writer("orders") as writer,
                connection.writer("orders", packed=True) as packed,
            ):
                for user in (reader, consumer, writer, packed):
                    for name, parameter in functions(type(user)):
                        for value in WRONG:
                            await attempt_it(getattr(user, name), parameter, value)
                with pytest.raises(TypeError):
                    writer.settled("1")  # type: ignore[arg-type]
            assert await connection.describe()

    asyncio.run(main())
