"""A name server: `resolver.py ADDRESS` answers each A query with 127.0.0.1; after SIGUSR1 never."""
import signal
import socket
import struct
import sys

SILENT = False


def silence(*_):
    """Stops answering."""
    global SILENT
    SILENT = True


def answer(query):
    """Response to a query: its question, and for type A one record, which points back to the name
    at offset 12."""
    end = query.index(b"\0", 12) + 5
    record = b""
    if query[end - 4:end - 2] == b"\0\1":
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + bytes([127, 0, 0, 1])
    head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if record else 0, 0, 0)
    return head + query[12:end] + record


signal.signal(signal.SIGUSR1, silence)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
while True:
    query, client = server.recvfrom(2048)
    if not SILENT:
        server.sendto(answer(query), client)
