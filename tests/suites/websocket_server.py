"""A WebSocket server that sends back what it gets. Usage: websocket_server.py PORT.

Runs in the suites' virtual environment. Does not contain a judgement of messages.
"""

import asyncio
import sys

from websockets.asyncio.server import serve


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def main():
    # The cases send messages of up to 16 MiB, and answer pings themselves.
    options = {"max_size": None, "max_queue": None, "ping_interval": None, "server_header": "echo"}
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), **options) as server:
        await server.serve_forever()


asyncio.run(main())
