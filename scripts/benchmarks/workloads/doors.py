"""One client that publishes through a door and reads the durable contents back, compared with a plain echo server.

The echo server uses the same library as the door: it is the door without protocol, broker and disk. Both sides have
one client process that sends and receives at the same time, in one event loop.
"""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench
from benchmarks.measure import Peer, Row, Sample, Subject, compare
from benchmarks.roles import Role
from benchmarks.workloads.drain import SIZES

LIBRARIES = {
    "mc0": "pyzmq",
    "mbws": "websockets",
    "micromessage": "asyncio",
    "reactive": "asyncio",
    "reactive-websocket": "websockets",
}
"""A door, and the library that it uses."""


def doors(bench: Bench) -> list[Row]:
    """Contents per second, from the first that is sent to the last that is read."""
    return [row for name in LIBRARIES for octets in SIZES for row in _door(bench, name, octets)]


def _door(bench: Bench, name: str, octets: int) -> list[Row]:
    count = bench.plan.amount(short=5_000, full=50_000)
    library = LIBRARIES[name]
    peer = Peer(f"plain {library} echo, not durable", partial(_echo, library, octets, count))
    subject = Subject("doors", f"door {name}, publish and read, {octets} B", "contents/s")
    return compare(subject, partial(_ours, bench, name, octets, count), [peer], bench.plan.rounds)


def _ours(bench: Bench, name: str, octets: int, count: int) -> Sample:
    with bench.resources() as (resource,), Role("door", protocol=name, broker=bench.endpoint) as door:
        endpoint = door.ready()["endpoint"]
        door.go()
        how = {"protocol": name, "endpoint": endpoint, "resource": resource, "octets": octets, "count": count}
        with Role("through_door", **how) as client:
            return Sample(count / client.run()["seconds"])


def _echo(library: str, octets: int, count: int) -> Sample:
    with Role("echo_server", library=library) as server:
        endpoint = server.ready()["endpoint"]
        server.go()
        with Role("through_echo", library=library, endpoint=endpoint, octets=octets, count=count) as client:
            return Sample(count / client.run()["seconds"])
