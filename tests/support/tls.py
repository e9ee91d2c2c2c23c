"""A certificate of 127.0.0.1, and who trusts it, from an authority of the moment."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Certificates:
    """`certificate` and `key` are files, as a door's configuration names them; `trusting` is a client's side."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        self.certificate, self.key = str(directory / "certificate.pem"), str(directory / "key.pem")
        issued.private_key_pem.write_to_path(self.key)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(self.certificate, append=True)
        self.trusting = ssl.create_default_context()
        authority.configure_trust(self.trusting)
