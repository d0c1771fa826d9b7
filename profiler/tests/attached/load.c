/* Closed-loop load for any protocol: `load PORT CONNECTIONS REQUEST GREETING`.
 *
 * REQUEST and GREETING are files; GREETING may be empty. Each connection sends the greeting, reads
 * what comes, and then sends the request again and again, each after the answer to the one before.
 * All answers must have the same length, which the first one shows: nothing comes for 100 ms.
 *
 * The program prints `ready` and the port of its first connection, and then reads lines with a
 * number of seconds. For each it runs that long, and prints: answers; seconds; median and 99th
 * percentile of the latency in ns. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, QUIET_MS = 100, LATENCIES = 1 << 22, FILE_SIZE = 65536 };

struct connection {
    int fd;
    size_t missing;
    uint64_t sent;
};

static struct connection connections[MOST];
static uint32_t latencies[LATENCIES];
static char request[FILE_SIZE], greeting[FILE_SIZE], answer[1 << 18];
static size_t request_size, greeting_size, answer_size;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static size_t file(const char *path, char *into) {
    FILE *opened = fopen(path, "rb");
    if (!opened)
        fail(path);
    size_t size = fread(into, 1, FILE_SIZE, opened);
    fclose(opened);
    return size;
}

static void ask(struct connection *peer) {
    peer->missing = answer_size;
    peer->sent = now();
    if (write(peer->fd, request, request_size) != (ssize_t)request_size)
        fail("write");
}

/* Reads until nothing comes for a while; returns the number of bytes. */
static size_t quiet(int fd) {
    size_t sum = 0;
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    while (poll(&waiting, 1, sum ? QUIET_MS : 5000) > 0) {
        ssize_t n = read(fd, answer, sizeof answer);
        if (n <= 0)
            fail("read");
        sum += (size_t)n;
    }
    return sum;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sends requests for so long; afterwards no answer is missing. */
static void run(int poller, int count, double seconds) {
    uint64_t begin = now(), end = begin + (uint64_t)(seconds * 1e9), answers = 0;
    int open = count;
    for (int i = 0; i < count; i++)
        ask(&connections[i]);
    while (open > 0) {
        struct epoll_event events[MOST];
        int n = epoll_wait(poller, events, MOST, 10000);
        if (n == 0 || (n < 0 && errno != EINTR))
            fail("no answer for 10 s");
        for (int i = 0; i < n; i++) {
            struct connection *peer = events[i].data.ptr;
            ssize_t got = read(peer->fd, answer, sizeof answer);
            if (got <= 0 || (size_t)got > peer->missing)
                fail("read");
            if ((peer->missing -= (size_t)got) > 0)
                continue;
            uint64_t time = now(), took = time - peer->sent;
            latencies[answers++ % LATENCIES] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
            if (time < end)
                ask(peer);
            else
                open--;
        }
    }
    double length = (double)(now() - begin) / 1e9;
    size_t kept = answers < LATENCIES ? answers : LATENCIES;
    qsort(latencies, kept, sizeof *latencies, by_size);
    printf("%llu %.6f %u %u\n", (unsigned long long)answers, length, latencies[kept / 2], latencies[kept * 99 / 100]);
    fflush(stdout);
}

int main(int words, char **word) {
    prctl(PR_SET_PDEATHSIG, 9);
    int count = words == 5 ? atoi(word[2]) : 0;
    if (count < 1 || count > MOST) {
        fprintf(stderr, "usage: load PORT CONNECTIONS REQUEST GREETING\n");
        return 2;
    }
    request_size = file(word[3], request);
    greeting_size = file(word[4], greeting);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(word[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int poller = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        struct connection *peer = &connections[i];
        int one = 1;
        peer->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(peer->fd, (struct sockaddr *)&address, sizeof address))
            fail("connect");
        setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (greeting_size) {
            if (write(peer->fd, greeting, greeting_size) != (ssize_t)greeting_size)
                fail("write");
            quiet(peer->fd);
        }
        if (i == 0) {
            if (write(peer->fd, request, request_size) != (ssize_t)request_size)
                fail("write");
            answer_size = quiet(peer->fd);
            if (answer_size == 0)
                fail("no answer");
        }
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
        epoll_ctl(poller, EPOLL_CTL_ADD, peer->fd, &event);
    }
    struct sockaddr_in mine;
    socklen_t size = sizeof mine;
    getsockname(connections[0].fd, (struct sockaddr *)&mine, &size);
    printf("ready %d\n", ntohs(mine.sin_port));
    fflush(stdout);
    double seconds;
    while (scanf("%lf", &seconds) == 1)
        run(poller, count, seconds);
    return 0;
}
