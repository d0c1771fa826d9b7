"""Runs a session of pymemcache with the server at the port given as argument; prints `fine`."""
import sys

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

client = Client(("127.0.0.1", int(sys.argv[1])), connect_timeout=10, timeout=30)
assert client.set("a", b"1", noreply=False) is True
assert client.get("a") == b"1"
assert client.add("a", b"2", noreply=False) is False
assert client.replace("a", b"3", noreply=False) is True
assert client.append("a", b"4", noreply=False) and client.prepend("a", b"2", noreply=False)
assert client.get("a") == b"234"
assert client.incr("a", 1) == 235 and client.decr("a", 236) == 0
value, cas = client.gets("a")
assert client.cas("a", b"new", cas, noreply=False) is True
assert client.cas("a", b"newer", cas, noreply=False) is False
assert client.cas("nothing", b"x", cas, noreply=False) is None
assert client.set_many({f"k{i}": str(i).encode() for i in range(500)}, noreply=False) == []
found = client.get_many([f"k{i}" for i in range(600)])
assert len(found) == 500 and found["k499"] == b"499"
assert len(client.gets_many([f"k{i}" for i in range(40)])) == 40
assert client.delete_many([f"k{i}" for i in range(500)], noreply=False)
assert client.get("k1") is None
assert client.touch("a", 100, noreply=False) is True and client.touch("nothing", 100, noreply=False) is False
assert client.get("a") == b"new"
assert client.delete("a", noreply=False) is True and client.delete("a", noreply=False) is False
binary = bytes(range(256)) * 2000
client.set("binary", binary)
assert client.get("binary") == binary
try:
    client.set("large", b"x" * 2_000_000, noreply=False)
    raise SystemExit("a value that is too large was taken")
except (MemcacheServerError, MemcacheClientError):
    pass
assert client.get("large") is None
assert b"leeward" in client.version()
stats = client.stats()
assert int(stats[b"curr_items"]) == 1 and int(stats[b"limit_maxbytes"]) > 0
assert client.flush_all(noreply=False) is True
assert client.get("binary") is None
client.quit()
print("fine")
