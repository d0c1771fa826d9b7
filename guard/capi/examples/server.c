/* A server on one thread and epoll, protected by libleeward: `server PORT WORK_US SLO_US`.
 *
 * A request is a line, and its answer too: `ok`, or `busy` for a rejected one. A request computes
 * for
 * WORK_US microseconds. SLO_US 0: no protection. What belongs to the protection is marked with (1)
 * to (5). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <leeward.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

struct connection {
    int fd;
    size_t filled;
    lw_stamp stamp; /* (1) when the kernel received the bytes */
    char in[4096];
};

static lw_gate *gate;
static long work_us;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* The service itself: it computes. */
static void serve(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long until = now.tv_sec * 1000000000LL + now.tv_nsec + work_us * 1000;
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec * 1000000000LL + now.tv_nsec < until);
}

/* Answers a request, which `unparsed` bytes of the buffer follow. */
static const char *answer(struct connection *of, size_t unparsed) {
    lw_permit permit;
    lw_arrival arrival = {.size = sizeof arrival, .flags = LW_ARRIVE_ENTER | LW_ARRIVE_UNPARSED, .stamp = &of->stamp};
    arrival.unparsed = (uint32_t)unparsed;
    /* (2) The gate decides; after an error, the request is served as without a gate. */
    int decided = gate ? lw_arrive(gate, &arrival, &permit) : LW_E_CLOSED;
    if (decided == LW_REJECT) return "busy\n";
    serve();
    if (decided == LW_ADMIT) lw_finish(&permit, LW_DONE); /* (3) */
    return "ok\n";
}

/* Sends `*length` bytes, of which none are left then; false: the connection has ended. */
static int send_all(const struct connection *of, const char *out, size_t *length) {
    size_t count = *length;
    *length = 0;
    return count == 0 || send(of->fd, out, count, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)count;
}

/* Reads what there is and answers each line; false: the connection has ended. */
static int readable(struct connection *of) {
    char out[sizeof "busy" * sizeof of->in]; /* The longest answer to each byte of `in`. */
    size_t length = 0, begin = 0;
    ssize_t n = lw_recv(of->fd, of->in + of->filled, sizeof of->in - of->filled, MSG_DONTWAIT, &of->stamp); /* (4) */
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
    if (n <= 0) return 0;
    of->filled += (size_t)n;
    for (char *end; (end = memchr(of->in + begin, '\n', of->filled - begin)); begin = (size_t)(end - of->in) + 1) {
        const char *text = answer(of, of->filled - (size_t)(end - of->in) - 1);
        memcpy(out + length, text, strlen(text));
        length += strlen(text);
        /* A result waits for no other request; a rejection, which takes no time, may. */
        if (text[0] == 'o' && !send_all(of, out, &length)) return 0;
    }
    of->filled -= begin;
    memmove(of->in, of->in + begin, of->filled);
    if (of->filled == sizeof of->in) return 0;
    return send_all(of, out, &length);
}

static int listen_on(int port, long slo_us) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (slo_us > 0) { /* (5) a gate; stamps before listen, so that each connection inherits them */
        lw_options options = {.size = sizeof options, .slo_ns = (uint64_t)slo_us * 1000, .threads = 1};
        if (lw_gate_new(&gate, &options) != LW_OK || lw_stamp_enable(fd) != LW_OK) fail("leeward");
    }
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 1024)) fail("listen");
    if (getsockname(fd, (struct sockaddr *)&address, &length)) fail("getsockname");
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int count, char **arguments) {
    if (count != 4) {
        fputs("server PORT WORK_US SLO_US\n", stderr);
        return 2;
    }
    work_us = atol(arguments[2]);
    int listener = listen_on(atoi(arguments[1]), atol(arguments[3])), poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, ready[64];
    if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event)) fail("epoll");
    for (;;) {
        int events = epoll_wait(poll, ready, 64, -1);
        for (int i = 0; i < events; i++) {
            struct connection *of = ready[i].data.ptr;
            if (of == NULL) {
                int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (fd < 0) continue;
                of = calloc(1, sizeof *of);
                if (!of) fail("calloc");
                of->fd = fd;
                event = (struct epoll_event){.events = EPOLLIN, .data.ptr = of};
                if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event)) fail("epoll");
            } else if (!readable(of)) {
                close(of->fd);
                free(of);
            }
        }
    }
}
