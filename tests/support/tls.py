"""A certificate of 127.0.0.1, and who trusts it, from an authority of the moment."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Certificates:
    """`certificate` and `key` are files, as a door's configuration names them, `authority` is that of clients;
    `trusting` is a client's side. A client of an authority of its own may still trust the door's: `trusting`.
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
        """A client's side with a certificate of this user."""
        context = self._context()
        self._authority.issue_cert(f"{user}.example.org", common_name=user).configure_cert(context)
        return context

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._trusted.configure_trust(context)
        return context
