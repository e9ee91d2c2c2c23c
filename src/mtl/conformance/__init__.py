"""Black-box checks of RFC 11, for any server, and with a test server (`twin`) for any client (`mtl conformance`).

frames      the RFC's encoding, implemented a second time: checks do not use the library's own
report      a check, its verdict, and the frames that led to it
peer        the sockets of a checking client: requests, data flows, silence
control     checks of a server's control flow
data        checks of a server's data flow
router      a ROUTER socket that a thread serves
twin        the server that checks a client
client      the findings about that client
"""
