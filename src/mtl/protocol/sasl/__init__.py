"""SASL (RFC 4422) in RFC 11 "Client Authentication": both halves, without IO.

`mechanisms` has the mechanisms and their strength, `plain` and `scram` their messages, `server` and `client` one half
of a conversation each. Responses and challenges are octets here; the control flow encodes them in BASE64.
"""
