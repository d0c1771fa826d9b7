"""The backend that a service calls: `backend.py ADDRESS PORT SLOW_MS` answers at once.

After SIGUSR1 it answers after SLOW_MS; SLOW_MS 0 means never.
"""
import asyncio
import signal
import sys

DELAY = 0.0


async def serve(reader, writer):
    """Answers the requests of one connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(DELAY)
            close = b"connection: close" in head.lower()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"
                         + (b"Connection: close\r\n" if close else b"") + b"\r\n7.0")
            await writer.drain()
            if close:
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    """Serves until it is killed."""
    def slow():
        """Begins the delay."""
        global DELAY
        DELAY = float(sys.argv[3]) / 1000 or 3600
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, slow)
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]), backlog=1024)
    await server.serve_forever()


asyncio.run(main())
