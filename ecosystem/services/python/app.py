"""A service whose requests do what MODE says: `asgi` under uvicorn, `wsgi` under gunicorn."""
import asyncio
import os
import random
import time

MODE = os.environ["MODE"]
SLOW = [float(part) for part in os.environ.get("SLOW", "").split(",") if part]
ROUTES = {"/a": 0.1, "/b": 0.5, "/c": 2.0, "/d": 10.0}
ANSWER = b"x" * 100

began = 0.0


def burn(ms):
    """Takes so many ms of a CPU, by the thread's own clock."""
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        pass


def slowness():
    """3 between the seconds SLOW=FROM,UNTIL after the beginning, else 1."""
    return 3 if SLOW and SLOW[0] <= time.monotonic() - began < SLOW[1] else 1


def plan(path):
    """What a request does: awaits some ms, holds what meanwhile, then takes some ms of CPU."""
    if MODE in ("cpu", "pauses"):
        return 0, None, 1
    if MODE == "exp":
        return 0, None, random.expovariate(1)
    if MODE == "bimodal":
        return 0, None, 8 if random.randrange(10) == 0 else 0.2
    if MODE == "wait":
        return 20, None, 1
    if MODE == "lock":
        return (2, lock, 0) if random.randrange(2) else (0, None, 0.1)
    if MODE == "slow":
        return 0, None, slowness()
    if MODE == "routes":
        return 0, None, ROUTES.get(path, 0)
    if MODE == "pool":
        return 8, slots, 0.2
    if MODE == "rare":
        return (1000, None, 0) if random.randrange(100) == 0 else (0, None, 1)
    raise ValueError(MODE)


lock = asyncio.Lock()
slots = asyncio.Semaphore(8)


def begin(path):
    """Starts the clock of the mode `slow`."""
    global began
    if path == "/-/begin":
        began = time.monotonic()
    return path == "/-/begin"


async def asgi(scope, receive, send):
    """The service under uvicorn: work occupies the event loop, waiting does not."""
    if not begin(scope["path"]):
        wait, held, cpu = plan(scope["path"])
        if held:
            async with held:
                await asyncio.sleep(wait / 1e3)
        elif wait:
            await asyncio.sleep(wait / 1e3)
        burn(cpu)
    headers = [(b"content-length", b"100"), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


def wsgi(environ, start_response):
    """The service under gunicorn's sync workers: a request occupies its worker to the end."""
    wait, _, cpu = plan(environ["PATH_INFO"])
    if wait:
        time.sleep(wait / 1e3)
    burn(cpu)
    start_response("200 OK", [("content-length", "100"), ("content-type", "text/plain")])
    return [ANSWER]
