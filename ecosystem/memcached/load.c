/* Open-loop load for memcached: `load PORT CONNECTIONS SECONDS RATE SLO_US MIX [stored]`.
 *
 * MIX: `usr` is Facebook's USR pool, 99.8 % GETs with values of 2 bytes; `var` its VAR pool, 18 %
 * GETs and 82 % SETs with
 * values of some hundred bytes (Atikoglu et al. 2012). Keys have 21 bytes, of 100,000.
 *
 * RATE requests per second start at random times, independent of the answers; a latency counts from
 * the planned time. What is due on a connection by now leaves in one system call, so that the load
 * can exceed what the server takes. RATE 0: each connection sends 16 requests at once, and the next
 * when all are answered, to find the capacity.
 *
 * Prints: answers per second; results per second, then those within SLO_US; rejections
 * (`SERVER_ERROR`) per second; p50 and p99 of results in us; requests per second that were not
 * sent, as their connection had 1,024 unanswered ones or a full socket. The first quarter of the
 * time does not count. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 100000, MOST = 1024, UNANSWERED = 1024, BATCH = 16, ROOM = 16 << 20 };

struct connection {
    int fd;
    uint64_t due[UNANSWERED];
    unsigned char is_set[UNANSWERED];
    unsigned head, tail;
    size_t filled, queued, sent;
    char in[65536], out[65536];
};

static struct connection connections[MOST];
static uint32_t *latencies;
static size_t answers, results, in_time, rejections, skipped;
static uint64_t slo, warm, random_state = 88172645463325252u;
static int value, sets;
static char values[1024];

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Sends what is queued, as far as the socket takes it. */
static void flush(struct connection *of) {
    if (of->queued == of->sent) return;
    ssize_t n = send(of->fd, of->out + of->sent, of->queued - of->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) fail("send");
    of->sent += n > 0 ? (size_t)n : 0;
    if (of->sent == of->queued) of->sent = of->queued = 0;
}

/* Queues a request; 0: the connection has too many. */
static int ask(struct connection *of, uint64_t due, int set, unsigned key) {
    if (of->head - of->tail == UNANSWERED || sizeof of->out - of->queued < sizeof values + 256) return 0;
    char *text = of->out + of->queued;
    size_t room = sizeof of->out - of->queued;
    int length = set ? snprintf(text, room, "set key-%017u 0 0 %d\r\n%.*s\r\n", key, value, value, values)
                     : snprintf(text, room, "get key-%017u\r\n", key);
    of->queued += (size_t)length;
    of->due[of->head % UNANSWERED] = due;
    of->is_set[of->head++ % UNANSWERED] = (unsigned char)set;
    return 1;
}

/* Length of the first answer; 0: it is incomplete. */
static size_t answer(const char *in, size_t filled, int set, int *rejected) {
    const char *end = memchr(in, '\n', filled);
    if (!end) return 0;
    size_t line = (size_t)(end - in) + 1;
    *rejected = in[0] == 'S' && in[1] == 'E';
    if (*rejected || set || in[0] == 'E') return line;
    if (in[0] != 'V') fail("an unknown answer");
    const char *size = memrchr(in, ' ', line);
    size_t whole = line + (size_t)atoi(size + 1) + 2 + 5;
    return whole <= filled ? whole : 0;
}

static void receive(struct connection *of) {
    ssize_t n = recv(of->fd, of->in + of->filled, sizeof of->in - of->filled, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("recv");
    of->filled += (size_t)n;
    size_t begin = 0, length;
    int rejected = 0;
    uint64_t at = now();
    for (; of->tail != of->head; begin += length) {
        length = answer(of->in + begin, of->filled - begin, of->is_set[of->tail % UNANSWERED], &rejected);
        if (length == 0) break;
        uint64_t due = of->due[of->tail++ % UNANSWERED];
        if (at < warm) continue;
        answers++;
        if (rejected) {
            rejections++;
            continue;
        }
        if (results < ROOM) latencies[results] = (uint32_t)((at - due) / 1000 > UINT32_MAX ? UINT32_MAX : (at - due) / 1000);
        results++;
        in_time += at - due <= slo;
    }
    of->filled -= begin;
    memmove(of->in, of->in + begin, of->filled);
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments) {
    if (count < 7 || (strcmp(arguments[6], "usr") && strcmp(arguments[6], "var"))) {
        fputs("load PORT CONNECTIONS SECONDS RATE SLO_US usr|var [stored]\n", stderr);
        return 2;
    }
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int open = atoi(arguments[2]), is_var = arguments[6][0] == 'v';
    double seconds = atof(arguments[3]), rate = atof(arguments[4]);
    if (open < 1 || open > MOST) return 2;
    slo = (uint64_t)(atof(arguments[5]) * 1000);
    value = is_var ? 300 : 2;
    sets = is_var ? 820 : 2; /* Of a thousand. */
    memset(values, 'v', sizeof values - 1);
    latencies = malloc(ROOM * sizeof *latencies);
    for (int i = 0; i < open; i++) {
        int one = 1;
        connections[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connections[i].fd < 0 || connect(connections[i].fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
        setsockopt(connections[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    warm = UINT64_MAX;
    for (unsigned key = 0; count == 7 && key < KEYS; key++) {
        while (!ask(&connections[0], now(), 1, key)) {
            flush(&connections[0]);
            receive(&connections[0]);
        }
    }
    while (connections[0].tail != connections[0].head) {
        flush(&connections[0]);
        receive(&connections[0]);
    }
    uint64_t began = now(), until = began + (uint64_t)(seconds * 1e9), due = began;
    warm = began + (uint64_t)(seconds * 1e9 / 4);
    for (unsigned turn = 0; now() < until;) {
        if (rate > 0) {
            for (; due <= now(); turn++) {
                int sent = ask(&connections[turn % (unsigned)open], due, (int)(draw() % 1000) < sets, (unsigned)(draw() % KEYS));
                skipped += !sent && due >= warm;
                due += (uint64_t)(-log(1 - (double)(draw() >> 11) / 9007199254740992.0) / rate * 1e9);
            }
        }
        for (int i = 0; i < open; i++) {
            struct connection *of = &connections[i];
            if (of->tail != of->head) receive(of);
            for (int n = 0; rate == 0 && of->tail == of->head && n < BATCH; n++) {
                for (; n < BATCH; n++) ask(of, now(), (int)(draw() % 1000) < sets, (unsigned)(draw() % KEYS));
            }
            flush(of);
        }
    }
    double length = (double)(until - warm) / 1e9;
    size_t known = results < ROOM ? results : ROOM;
    qsort(latencies, known, sizeof *latencies, compare);
    printf("%.0f %.0f %.0f %.0f %u %u %.0f\n", (double)answers / length, (double)results / length, (double)in_time / length,
           (double)rejections / length, known ? latencies[known / 2] : 0, known ? latencies[known * 99 / 100] : 0, (double)skipped / length);
    return 0;
}
