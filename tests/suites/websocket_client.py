"""A WebSocket client that sends back what it gets, for a server of Autobahn's cases.

Usage: websocket_client.py PORT. Runs in the suites' virtual environment. Does not contain cases.
"""

import asyncio
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

BASE = f"ws://127.0.0.1:{sys.argv[1]}"
OPTIONS = {"max_size": None, "max_queue": None, "ping_interval": None, "compression": "deflate"}


async def case(number):
    try:
        async with connect(f"{BASE}/runCase?case={number}&agent=echo", **OPTIONS) as connection:
            async for message in connection:
                await connection.send(message)
    except (WebSocketException, OSError):
        # The server judges, not this client.
        pass


async def main():
    async with connect(f"{BASE}/getCaseCount", **OPTIONS) as connection:
        count = int(await connection.recv())
    for number in range(1, count + 1):
        await case(number)
    try:
        async with connect(f"{BASE}/updateReports?agent=echo", **OPTIONS) as connection:
            await connection.wait_closed()
    except (WebSocketException, OSError):
        # The server of cases ends with this request.
        pass


asyncio.run(main())
