"""Black-box checks of RFC 11: of any server, and by a twin of a server of any client. `mtl conformance` runs them.

frames      the octets of the RFC, written down a second time: nothing of the library is used to check it
report      a check, its verdict, and the frames that led to it
peer        the sockets of a checking client: requests, data flows, silence
control     what is checked of a server's control flow
data        what is checked of its data flow
twin        the server that a client is checked by
client      what is checked of that client
"""
