"""The broker compared with a model of RFC 11 and PROTOCOL.md: random commands of several clients; every answer is
compared.
"""
