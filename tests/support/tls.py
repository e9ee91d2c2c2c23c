"""A certificate for 127.0.0.1 from a temporary authority, and TLS contexts that trust it."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Certificates:
    """`certificate` and `key` are files for the configuration of a door, `authority` is the file of the client
    authority; `trusting` is the context of a client that trusts the door's authority.
    """

    def __init__(self, directory: Path, trusting: Certificates | None = None) -> None:
        self._authority = trustme.CA()
        self._trusted = self._authority if trusting is None else trusting._authority
        self.trusting = self._context()
        if trusting is not None:
            return
        issued = self._authority.issue_cert("127.0.0.1")
        self.certificate, self.key = str(directory / "certificate.pem"), str(directory / "key.pem")
        self.authority = str(directory / "authority.pem")
        self._authority.cert_pem.write_to_path(self.authority)
        issued.private_key_pem.write_to_path(self.key)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(self.certificate, append=True)

    def client(self, user: str) -> ssl.SSLContext:
        """The context of a client with a certificate of this user."""
        context = self._context()
        self._authority.issue_cert(f"{user}.example.org", common_name=user).configure_cert(context)
        return context

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._trusted.configure_trust(context)
        return context
