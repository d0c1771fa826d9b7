"""The planted faults: what a slow request is, and the answer that is right.

The answers were written before any was seen; what the services were found to do has made some
stricter since, and two more exact (nginx/upstream, memcached/metadump). Does not start anything.
"""
import dataclasses
import threading
import time
import typing

from clients import Http, Memcached, Postgres, Redis

EVAL = "local t = 0 for i = 1, 1000000 do t = t + i % 7 end return t"


@dataclasses.dataclass(frozen=True)
class Fault:
    """`plant` asks one slow request on a connection. `before` makes it slow, untimed.

    `culprit` is a pattern of the right answer, or texts of which the right function's code uses one.
    """
    service: str
    name: str
    plant: typing.Callable
    culprit: str | tuple
    before: typing.Callable = lambda service, connection: None

    @property
    def title(self):
        return f"{self.service}/{self.name}"


def ordinary(service, connection, turn):
    """Asks an ordinary request, the one of this turn."""
    if service.name == "redis":
        key = f"key:{turn * 7919 % service.keys}"
        connection.ask("SET", key, "x" * 64) if turn % 10 == 0 else connection.ask("GET", key)
    elif service.name == "nginx":
        connection.ask("/index.html")
    elif service.name == "postgres":
        connection.ask(f"SELECT name FROM goods WHERE id = {turn * 7919 % service.rows + 1}")
    elif service.name == "memcached":
        key = turn * 7919 % service.items
        if turn % 10 == 0:
            connection.ask(b"set key:%d 0 0 64\r\n%s\r\n" % (key, b"x" * 64), b"STORED\r\n")
        else:
            connection.ask(b"get key:%d\r\n" % key)
    else:
        connection.ask("/fast")


def ordinary_bytes(service):
    """The bytes of an ordinary request with a constant answer, and of a greeting before it."""
    if service.name == "redis":
        return Redis.command("GET", "key:7"), b""
    if service.name == "postgres":
        return Postgres.query("SELECT name FROM goods WHERE id = 7"), Postgres.greeting(b"user\0postgres\0database\0postgres\0\0")
    if service.name == "memcached":
        return b"get key:7\r\n", b""
    path = "/index.html" if service.name == "nginx" else "/fast"
    return f"GET {path} HTTP/1.1\r\nHost: service\r\n\r\n".encode(), b""


def hold_row(service, _connection):
    """Another session changes the row, and commits 15 ms later."""
    other = service.holder = getattr(service, "holder", None) or Postgres(service.port)
    other.ask("BEGIN")
    other.ask("UPDATE goods SET stock = stock - 1 WHERE id = 7")

    def commit():
        time.sleep(0.015)
        other.ask("COMMIT")
    service.committing = threading.Thread(target=commit)
    service.committing.start()


def update_row(service, connection):
    connection.ask("UPDATE goods SET stock = stock + 1 WHERE id = 7")
    service.committing.join()


def close_books(service, _connection):
    other = service.closer = getattr(service, "closer", None) or Http(service.port)
    other.ask("/closing")


def get_pages(service, _connection):
    # The answer waits in the service until this client has read.
    other = service.reader = getattr(service, "reader", None) or Memcached(service.port, held=1 << 17)
    other.send(b"get " + b" ".join(b"page:%d" % number for number in range(service.pages)) + b"\r\n")
    other.skip(b"\r\nEND\r\n")


def dump(connection, line):
    connection.send(line)
    connection.skip(b"END\r\n")


# Nothing of the service runs meanwhile: it waits where it waits for work, until someone else acts.
NOTHING_RUNS = r"waiting for an event or another thread"

# A right answer is the function of the service that does the work or enters the wait, not one that
# dispatches all requests, and no address of a program that has names nearby. In memcached, which is
# stripped, the right function is found by a text that its code uses: `code_search.py`. One that is
# told by its path: the C library's function that it calls may be named.
FAULTS = [
    Fault("redis", "eval", lambda service, connection: connection.ask("EVAL", EVAL, 0),
          r"^(evalCommand|evalGenericCommand\w*|scriptCall|luaCallFunction|lua_p?call\w*)$"),
    Fault("redis", "keys", lambda service, connection: connection.ask("KEYS", "*99?9*"),
          r"^(keysCommand|stringmatch\w*|dict\w+)$"),
    Fault("redis", "sort", lambda service, connection: connection.ask("SORT", "list", "LIMIT", 0, 5),
          r"^(sortCommand\w*|pqsort|sortCompare)$"),
    Fault("nginx", "gzip", lambda service, connection: connection.ask("/reports/all.txt"),
          r"^(deflate\w*|ngx_http_gzip\w*)$"),
    Fault("nginx", "regex", lambda service, connection: connection.ask("/users/" + "a" * 18 + "/index.html"),
          r"^(pcre2?_\w+|ngx_regex\w*|ngx_http_regex\w*)$"),
    # It waits for its backend in the event loop in which it waits for clients.
    Fault("nginx", "upstream", lambda service, connection: connection.ask("/price"), rf"^{NOTHING_RUNS}$"),
    Fault("postgres", "scan",
          lambda service, connection: connection.ask("SELECT count(*) FROM goods WHERE name LIKE '%fff%fff%'"),
          r"^(ExecScan|ExecSeqScan|heap_getnext\w*|textlike|ExecInterpExpr\w*)$"),
    Fault("postgres", "sleep", lambda service, connection: connection.ask("SELECT pg_sleep(0.015)"),
          r"^(pg_sleep|WaitLatch)$"),
    Fault("postgres", "lock", update_row,
          r"^(ProcSleep|WaitOnLock|LockAcquire\w*|XactLockTableWait|heap_update|heap_lock_tuple|heapam_tuple_update|"
          r"table_tuple_update|WaitLatch)$", before=hold_row),
    Fault("memcached", "cachedump",
          lambda service, connection: dump(connection, f"stats cachedump {service.slab} 0\r\n".encode()),
          ("ITEM %s [%d b; %llu s]",)),
    # A background thread dumps, and sleeps after every thousand items: most time passes there.
    Fault("memcached", "metadump", lambda service, connection: dump(connection, b"lru_crawler metadump all\r\n"),
          ("key=%s exp=%ld la=%llu cas=%llu fetch=%s cls=%u size=%lu", "Starting LRU crawler")),
    # The sockets hold a fifth of the answer: it sends, and waits until the client has read.
    Fault("memcached", "multiget", get_pages, rf"^((__)?(libc_)?sendmsg|{NOTHING_RUNS})$"),
    Fault("go", "cpu", lambda service, connection: connection.ask("/report"), r"^main\.(report|buildReport)(\.func\d+)?$"),
    Fault("go-stripped", "cpu", lambda service, connection: connection.ask("/report"),
          r"^main\.(report|buildReport)(\.func\d+)?$"),
    # Which goroutine holds it, or where others wait for it.
    Fault("go", "mutex", lambda service, connection: connection.ask("/account"),
          r"^(main\.(account|closeBooks|buildReport)(\.func\d+)?|sync\.\(\*Mutex\)\.\w+|internal/sync\.\(\*Mutex\)\.\w+)$",
          before=close_books),
    Fault("node", "cpu", lambda service, connection: connection.ask("/report"), r"^buildReport$"),
    Fault("go", "downstream", lambda service, connection: connection.ask("/price"),
          rf"^(main\.price|net/http\.\(\*(Client|Transport|persistConn)\)\.\w+|{NOTHING_RUNS})$"),
    # Each request has a process of its own.
    Fault("forking", "export", lambda service, connection: connection.ask("/export"), r"^(export_orders|count)$"),
]
