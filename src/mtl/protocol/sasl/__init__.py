"""SASL (RFC 4422) as RFC 11 "Client Authentication" carries it: both halves, without IO.

`mechanisms` names the mechanisms and their strength, `plain` and `scram` know their messages, `server` and `client` are
one conversation each. A response or challenge is octets here; BASE64 is the control flow's.
"""
