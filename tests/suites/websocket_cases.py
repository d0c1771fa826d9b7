"""Runs Autobahn's cases, by kosoku, and prints how each went as JSON: [messages, closing] by case.

Usage: websocket_cases.py server ADDRESS CASE,… against a server at the address (ws://…), or
websocket_cases.py client CASE,…: a server of cases, whose port is its first line, for a client.
Runs in the suites' virtual environment. Does not contain a judgement of results.
"""

import asyncio
import json
import os
import sys

from kosoku import FailureError, run_fuzzingclient, run_fuzzingserver


async def ask_server(address, cases):
    return await run_fuzzingclient(address, cases, [], concurrency=8)


async def serve_client(cases):
    async with run_fuzzingserver(cases, [], host="127.0.0.1", port=0) as server:
        print(server.port, flush=True)
        return await server.get_result()


async def main():
    kind, *rest = sys.argv[1:]
    cases = rest[-1].split(",")
    try:
        results = await (ask_server(rest[0], cases) if kind == "server" else serve_client(cases))
    except FailureError as failure:
        results = failure.results
    judged = {result.case_id: [result.behavior.value, result.behavior_close.value] for result in results}
    print(json.dumps(judged), flush=True)
    # kosoku's threads now and then abort a process that ends in the usual way.
    os._exit(0)


asyncio.run(main())
