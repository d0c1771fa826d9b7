"""A shop's price service on asyncio streams. Usage: streams.py MODE PORT."""
import asyncio
import json
import os
import sys
import time

MODE, PORT = sys.argv[1], int(sys.argv[2])
COST_MS = float(os.environ.get("COST_MS", "1"))
STOCK = asyncio.Lock()


def burn(ms):
    """By the thread's own CPU clock: the cost is the same on a busy machine."""
    end = time.thread_time() + ms / 1000
    total = 0
    while time.thread_time() < end:
        total += sum(i * i for i in range(200))
    return total


async def ask_backend():
    host, port = os.environ["BACKEND"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /price HTTP/1.1\r\nHost: backend\r\nConnection: close\r\n\r\n")
    await reader.read()
    writer.close()


async def work(path):
    if path == "/poll":
        await asyncio.sleep(30)
    elif MODE == "lock":
        async with STOCK:
            await asyncio.sleep(COST_MS / 1000)
    elif MODE == "downstream":
        await ask_backend()
        burn(float(os.environ.get("BURN_MS", "0.1")))
    elif MODE == "dns":
        try:
            await asyncio.get_running_loop().getaddrinfo(os.environ["NAME"], 80)
        except OSError:
            pass
    else:
        burn(COST_MS)


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            await work(path)
            body = json.dumps({"path": path, "price": 7 * len(path)}).encode()
            if path == "/large":
                body = b"x" * (4 << 20)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT, backlog=1024)
    await server.serve_forever()


asyncio.run(main())
