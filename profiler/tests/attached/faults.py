"""The planted faults: what a slow request is, and the answer that is right.

The answers were written before any was seen. Does not start anything.
"""
import dataclasses
import threading
import time
import typing

from clients import Http, Postgres, Redis

EVAL = "local t = 0 for i = 1, 1000000 do t = t + i % 7 end return t"


@dataclasses.dataclass(frozen=True)
class Fault:
    """`plant` asks one slow request on a connection. `before` makes it slow, untimed."""
    service: str
    name: str
    plant: typing.Callable
    culprit: str
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


def get_pages(_service, connection):
    connection.ask(b"get " + b" ".join(b"page:%d" % number for number in range(10)) + b"\r\n", b"\r\nEND\r\n")


# In memcached, which is stripped, the right function is found in its code: `code.py`.
FAULTS = [
    Fault("redis", "eval", lambda service, connection: connection.ask("EVAL", EVAL, 0),
          r"^(evalCommand|evalGenericCommand\w*|scriptCall|luaCallFunction|lua\w+|redis-(server|check-rdb)\+0x.*)$"),
    Fault("redis", "keys", lambda service, connection: connection.ask("KEYS", "*99?9*"),
          r"^(keysCommand|stringmatch\w*|dict\w+)$"),
    Fault("redis", "sort", lambda service, connection: connection.ask("SORT", "list", "LIMIT", 0, 5),
          r"^(sortCommand\w*|pqsort|qsort\w*|sortCompare|strtod\w*|.*strtold?_l.*)$"),
    Fault("nginx", "gzip", lambda service, connection: connection.ask("/reports/all.txt"),
          r"^(deflate\w*|libz\.so.*|ngx_http_gzip\w*|ngx_http_(static|copy|output|write)\w*|ngx_http_output_filter)$"),
    Fault("nginx", "regex", lambda service, connection: connection.ask("/users/" + "a" * 18 + "/index.html"),
          r"^(pcre2?_\w+|libpcre.*|ngx_regex\w*|ngx_http_regex\w*|ngx_http_core_find_(config|location)\w*)$"),
    Fault("nginx", "upstream", lambda service, connection: connection.ask("/price"),
          r"(?i)(upstream|wait|idle|epoll|not worked on|nobody|no thread)"),
    Fault("postgres", "scan",
          lambda service, connection: connection.ask("SELECT count(*) FROM goods WHERE name LIKE '%fff%fff%'"),
          r"^(ExecScan|standard_ExecutorRun|ExecutorRun|ExecSeqScan|heap_getnext\w*|heapgettup\w*|textlike|\w*like\w*|"
          r"ExecInterpExpr\w*|PortalRun\w*|advance_agg\w*|ExecAgg|postgres\+0x.*)$"),
    Fault("postgres", "sleep", lambda service, connection: connection.ask("SELECT pg_sleep(0.015)"),
          r"^(pg_sleep|WaitLatch|WaitEventSetWait\w*|epoll_wait.*)$"),
    Fault("postgres", "lock", update_row,
          r"^(ProcSleep|WaitOnLock|LockAcquire\w*|XactLockTableWait|heap_update|heap_lock_tuple|heapam_tuple_update|"
          r"table_tuple_update|WaitLatch|WaitEventSetWait\w*|ExecModifyTable|ExecUpdate\w*)$", before=hold_row),
    Fault("memcached", "cachedump",
          lambda service, connection: connection.ask(f"stats cachedump {service.slab} 0\r\n".encode()),
          "code:ITEM %s [%d b; %llu s]"),
    Fault("memcached", "metadump", lambda service, connection: connection.ask(b"lru_crawler metadump all\r\n"),
          "code:key=%s exp=%ld la=%llu cas=%llu fetch=%s cls=%u size=%lu"),
    Fault("memcached", "multiget", get_pages, r"^(__)?(libc_)?sendmsg.*$|^write.*$"),
    Fault("go", "cpu", lambda service, connection: connection.ask("/report"),
          r"^(main\.(report|buildReport).*|sort\.\w+.*|encoding/json\..*)$"),
    Fault("go-stripped", "cpu", lambda service, connection: connection.ask("/report"),
          r"^(main\.(report|buildReport).*|sort\.\w+.*|encoding/json\..*)$"),
    Fault("go", "mutex", lambda service, connection: connection.ask("/account"),
          r"^(main\.(account|closeBooks|buildReport).*|sync\.\(\*(RW)?Mutex\).*|internal/sync\..*|.*[sS]emacquire.*)$",
          before=close_books),
    Fault("node", "cpu", lambda service, connection: connection.ask("/report"), r"^buildReport$"),
    Fault("go", "downstream", lambda service, connection: connection.ask("/price"),
          r"(?i)(main\.price|net/http\.\(\*(Client|Transport|persistConn)\)|wait|idle|no thread|not worked on)"),
]
