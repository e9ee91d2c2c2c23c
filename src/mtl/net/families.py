"""The address family by which each host name is reached. libzmq uses one per socket: the first address of that family.

IPv4 comes first. After a connection that could not be made the next one uses the other family, so names that have only
an IPv6 address work, and names whose server listens at one of two addresses.
"""

from __future__ import annotations

import ipaddress

KNOWN_NAMES = 1_000
"""Host names that are reached by IPv6. A server can name others in its leases, so there is a limit."""


class Families:
    """See the module."""

    def __init__(self) -> None:
        self._by_ipv6: dict[str, None] = {}

    def is_ipv6(self, endpoint: str) -> bool:
        """Whether the next connection to a tcp endpoint uses IPv6."""
        return "[" in endpoint or _host(endpoint) in self._by_ipv6

    def reached(self, endpoint: str, *, ipv6: bool) -> None:
        """A connection was made: use its family again."""
        host = _host(endpoint)
        if not is_name(host):
            return
        if not ipv6:
            self._by_ipv6.pop(host, None)
        elif host not in self._by_ipv6:
            if len(self._by_ipv6) >= KNOWN_NAMES:
                self._by_ipv6.pop(next(iter(self._by_ipv6)))
            self._by_ipv6[host] = None

    def missed(self, endpoint: str, *, ipv6: bool) -> None:
        """A connection could not be made: use the other family next."""
        self.reached(endpoint, ipv6=not ipv6)


def is_name(host: str) -> bool:
    """Whether a host is a name, which may have addresses of both families."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return bool(host)
    return False


def _host(endpoint: str) -> str:
    return endpoint.removeprefix("tcp://").rpartition(":")[0] if endpoint.startswith("tcp://") else ""
