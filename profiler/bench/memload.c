/* Load for memcached: `memload PORT CONNECTIONS SECONDS SETS RATE BATCH [stored]`.
 *
 * SETS per cent of the requests are SETs of 200 bytes, the others GETs, over 10,000 keys. PORT may
 * be the path of a UNIX socket.
 *
 * RATE > 0, open loop: RATE requests per second start at random times, independent of the answers.
 * A latency counts from the planned time. The program never sleeps: it polls the clock and its
 * connections, and gives way to all other programs on its CPU. To sleep and wake would cost more
 * than a request, above all in a virtual machine.
 *
 * RATE 0, closed loop: each connection sends BATCH requests (at most 64) at once, and the next
 * batch when all are answered. Batches are made in advance, and answers are only counted by their
 * bytes, so that the load is cheaper than the server.
 *
 * The program prints `ready` once the keys are stored (`stored`: an earlier load stored them), and
 * waits for a line or the end of its input. At the end it prints: requests; seconds; latencies in
 * ns (median, p99, p99.9; 0 in the closed loop); requests left out because their connection had 64
 * unanswered ones. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 10000, VALUE = 200, MAX_CONNECTIONS = 256, UNDER_WAY = 64 };

struct connection {
    int fd;
    /* Ring of unanswered requests: planned time, and whether it is a SET. */
    uint64_t due[UNDER_WAY];
    int is_set[UNDER_WAY];
    unsigned head, tail;
    char in[65536];
    size_t filled;
};

static struct connection connections[MAX_CONNECTIONS];
static uint64_t random_state = 88172645463325252u;
static uint64_t *latencies;
static size_t answered, room;
static char value[VALUE + 1];

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t draw(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void send_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, bytes, length);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd waiting = {.fd = fd, .events = POLLOUT};
            poll(&waiting, 1, 1000);
            continue;
        }
        if (n <= 0)
            fail("write");
        bytes += n;
        length -= (size_t)n;
    }
}

/* Writes a request to `text` and adds it to the unanswered ones. Returns the request's length. */
static size_t put(struct connection *c, char *text, size_t room_left, uint64_t due, int set, unsigned key) {
    int length = set ? snprintf(text, room_left, "set key%06u 0 0 %d\r\n%s\r\n", key, VALUE, value)
                     : snprintf(text, room_left, "get key%06u\r\n", key);
    c->due[c->head % UNDER_WAY] = due;
    c->is_set[c->head++ % UNDER_WAY] = set;
    return (size_t)length;
}

static void ask(struct connection *c, uint64_t due, int set, unsigned key) {
    char text[512];
    send_all(c->fd, text, put(c, text, sizeof text, due, set, key));
}

/* Length of the first answer among the received bytes; 0 if it is incomplete. */
static size_t answer_length(const struct connection *c) {
    const char *end = c->is_set[c->tail % UNDER_WAY] ? "STORED\r\n" : "END\r\n";
    const char *found = memmem(c->in, c->filled, end, strlen(end));
    return found ? (size_t)(found - c->in) + strlen(end) : 0;
}

/* Reads the available bytes and records latencies. Returns the number of complete answers. */
static int receive(struct connection *c) {
    ssize_t n = read(c->fd, c->in + c->filled, sizeof c->in - c->filled);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        fail("read");
    c->filled += (size_t)n;
    int count = 0;
    for (size_t length; c->tail != c->head && (length = answer_length(c)) > 0; count++) {
        c->filled -= length;
        memmove(c->in, c->in + length, c->filled);
        uint64_t due = c->due[c->tail++ % UNDER_WAY];
        if (answered < room)
            latencies[answered] = now() - due;
        answered++;
    }
    return count;
}

static void open_all(const char *where, int count) {
    struct sockaddr_in port = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(where)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int is_path = where[0] == '/';
    strncpy(path.sun_path, where, sizeof path.sun_path - 1);
    for (int i = 0; i < count; i++) {
        int one = 1;
        int fd = connections[i].fd = socket(is_path ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, is_path ? (struct sockaddr *)&path : (struct sockaddr *)&port, is_path ? sizeof path : sizeof port) != 0)
            fail("connect");
        if (!is_path)
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(fd, F_SETFL, O_NONBLOCK);
    }
}

static int wait_for(int count, uint64_t nanoseconds) {
    static struct pollfd waiting[MAX_CONNECTIONS];
    struct timespec t = {.tv_sec = (time_t)(nanoseconds / 1000000000), .tv_nsec = (long)(nanoseconds % 1000000000)};
    for (int i = 0; i < count; i++)
        waiting[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
    ppoll(waiting, (nfds_t)count, &t, NULL);
    int answers = 0;
    for (int i = 0; i < count; i++)
        if (waiting[i].revents)
            answers += receive(&connections[i]);
    return answers;
}

static int ask_something(struct connection *c, uint64_t due, int sets) {
    if (c->head - c->tail == UNDER_WAY)
        return 0;
    ask(c, due, (int)(draw() % 100) < sets, (unsigned)(draw() % KEYS));
    return 1;
}

/* Batches that are made in advance. `answers`: bytes of the answers to the whole batch. */
enum { BATCHES = 64 };
static struct {
    char text[64 * 256];
    size_t length, answers;
} batches[BATCHES];
static size_t expected[MAX_CONNECTIONS];

static void make_batches(int batch, int sets) {
    for (int b = 0; b < BATCHES; b++)
        for (int i = 0; i < batch; i++) {
            static struct connection unused;
            char answer[64];
            unsigned key = (unsigned)(draw() % KEYS);
            int set = (int)(draw() % 100) < sets;
            batches[b].length += put(&unused, batches[b].text + batches[b].length, sizeof batches[b].text - batches[b].length, 0, set, key);
            batches[b].answers += set ? strlen("STORED\r\n")
                                      : (size_t)snprintf(answer, sizeof answer, "VALUE key%06u 0 %d\r\n\r\nEND\r\n", key, VALUE) + VALUE;
        }
}

static void ask_many(int which) {
    int b = (int)(draw() % BATCHES);
    expected[which] = batches[b].answers;
    send_all(connections[which].fd, batches[b].text, batches[b].length);
}

/* Keeps every connection busy until `until`. Returns the number of answers. */
static size_t saturate(int count, int batch, uint64_t until) {
    static char in[1 << 18];
    static struct pollfd waiting[MAX_CONNECTIONS];
    size_t answers = 0;
    for (int i = 0; i < count; i++) {
        waiting[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
        ask_many(i);
    }
    while (now() < until) {
        poll(waiting, (nfds_t)count, 100);
        for (int i = 0; i < count; i++) {
            if (!waiting[i].revents)
                continue;
            ssize_t n = read(connections[i].fd, in, sizeof in);
            if (n < 0 && errno == EAGAIN)
                continue;
            if (n <= 0 || (size_t)n > expected[i])
                fail("answers");
            if ((expected[i] -= (size_t)n) == 0) {
                answers += (size_t)batch;
                ask_many(i);
            }
        }
    }
    return answers;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Gives all other threads on this CPU precedence over this one. */
static void give_way(void) {
    struct sched_param none = {0};
    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0)
        fail("SCHED_IDLE");
}

int main(int argc, char **argv) {
    if (argc != 7 && !(argc == 8 && strcmp(argv[7], "stored") == 0)) {
        fputs("memload PORT CONNECTIONS SECONDS SETS RATE BATCH [stored]\n", stderr);
        return 2;
    }
    int count = atoi(argv[2]), sets = atoi(argv[4]), batch = atoi(argv[6]);
    double seconds = atof(argv[3]), rate = atof(argv[5]);
    if (count < 1 || count > MAX_CONNECTIONS || batch < 1 || batch > 64)
        return 2;
    prctl(PR_SET_TIMERSLACK, 1);
    memset(value, 'v', VALUE);
    room = 20000000;
    latencies = malloc(room * sizeof *latencies);
    open_all(argv[1], count);
    for (unsigned key = 0; argc == 7 && key < KEYS; key++) {
        ask(&connections[0], now(), 1, key);
        while (connections[0].tail != connections[0].head)
            wait_for(1, 1000000000);
    }
    /* The parent program reads the server's CPU time now, then writes a line. */
    puts("ready");
    fflush(stdout);
    getchar();
    answered = 0;
    uint64_t began = now(), until = began + (uint64_t)(seconds * 1e9), due = began;
    size_t skipped = 0;
    int turn = 0;
    if (rate == 0) {
        make_batches(batch, sets);
        answered = saturate(count, batch, until);
        printf("%zu %.3f 0 0 0 0\n", answered, (double)(now() - began) / 1e9);
        return 0;
    }
    give_way();
    while (now() < until) {
        while (due <= now()) {
            skipped += !ask_something(&connections[turn++ % count], due, sets);
            due += (uint64_t)(-log(1 - (double)(draw() >> 11) / 9007199254740992.0) / rate * 1e9);
        }
        for (int i = 0; i < count; i++)
            if (connections[i].head != connections[i].tail)
                receive(&connections[i]);
    }
    double length = (double)(now() - began) / 1e9;
    size_t n = answered < room ? answered : room;
    qsort(latencies, n, sizeof *latencies, compare);
    if (n == 0)
        return 1;
    printf("%zu %.3f %llu %llu %llu %zu\n", answered, length, (unsigned long long)latencies[n / 2],
           (unsigned long long)latencies[n * 99 / 100], (unsigned long long)latencies[n * 999 / 1000], skipped);
    return 0;
}
