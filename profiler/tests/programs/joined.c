/* Three processes: `joined FOLDER` is the front, which starts itself as `store` and `cache` and
 * calls both for each request, over sockets. Every 100th request is slow: the store waits for a
 * lock, which its thread `snapshot` holds while it works. Culprits: looks_up, takes_snapshot. */
#define _GNU_SOURCE
#include "leeward_profile.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REQUESTS = 1500, EVERY = 100 };

struct message {
    uint8_t trace[16];
    uint64_t parent;
    uint64_t slow;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long table[64];
static atomic_int wanted, held;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t next_span(void) {
    static uint64_t state;
    return (uint64_t)getpid() << 32 | ++state;
}
__attribute__((noinline)) static void works(uint64_t nanoseconds) {
    for (uint64_t until = now() + nanoseconds; now() < until;)
        table[now() % 64]++;
}

__attribute__((noinline)) static void takes_snapshot(void) {
    pthread_mutex_lock(&table_lock);
    atomic_store(&held, 1);
    works(30000000);
    pthread_mutex_unlock(&table_lock);
}
static void *snapshot(void *unused) {
    (void)unused;
    for (;;) {
        while (!atomic_exchange(&wanted, 0))
            usleep(200);
        takes_snapshot();
    }
    return NULL;
}

__attribute__((noinline)) static void looks_up(void) {
    pthread_mutex_lock(&table_lock);
    works(20000);
    pthread_mutex_unlock(&table_lock);
}

static void backend(int socket, int has_lock) {
    pthread_t other;
    if (has_lock && pthread_create(&other, NULL, snapshot, NULL) != 0)
        exit(2);
    struct message message;
    for (uint64_t id = 1; recv(socket, &message, sizeof message, MSG_WAITALL) == sizeof message; id++) {
        leeward_req_start(id, NULL);
        leeward_req_trace(id, message.trace, next_span(), message.parent);
        if (has_lock && message.slow) {
            atomic_store(&held, 0);
            atomic_store(&wanted, 1);
            while (!atomic_load(&held))
                ;
        }
        looks_up();
        leeward_req_end(id);
        if (send(socket, &message, sizeof message, MSG_NOSIGNAL) != sizeof message)
            break;
    }
    /* Normally, so that the run-time finishes its trace. */
    exit(0);
}

static int begins(const char *role, char *program) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
        exit(2);
    pid_t child = fork();
    if (child == 0) {
        close(sockets[0]);
        char number[16];
        snprintf(number, sizeof number, "%d", sockets[1]);
        execl(program, role, role, number, (char *)NULL);
        exit(2);
    }
    close(sockets[1]);
    return sockets[0];
}

__attribute__((noinline)) static void calls(uint64_t id, struct message message, int socket, const char *name) {
    message.parent = next_span();
    leeward_req_call(id, message.parent, name);
    if (send(socket, &message, sizeof message, MSG_NOSIGNAL) != sizeof message ||
        recv(socket, &message, sizeof message, MSG_WAITALL) != sizeof message)
        exit(2);
    leeward_req_answer(id, message.parent);
}

__attribute__((noinline)) static void serves(uint64_t id, int store, int cache) {
    struct message message = {.slow = id % EVERY == 0};
    uint64_t high = now();
    memcpy(message.trace, &high, 8);
    memcpy(message.trace + 8, &id, 8);
    leeward_req_start(id, NULL);
    leeward_req_trace(id, message.trace, next_span(), 0);
    calls(id, message, store, "store");
    calls(id, message, cache, "cache");
    works(5000);
    leeward_req_end(id);
}

int main(int count, char **arguments) {
    if (count > 2) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        backend(atoi(arguments[2]), strcmp(arguments[1], "store") == 0);
    }
    int store = begins("store", arguments[0]), cache = begins("cache", arguments[0]);
    for (uint64_t id = 1; id <= REQUESTS; id++)
        serves(id, store, cache);
    close(store);
    close(cache);
    while (wait(NULL) > 0)
        ;
    puts("right");
    return 0;
}
