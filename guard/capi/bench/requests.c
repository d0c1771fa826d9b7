/* Nanoseconds per request through the C interface, on one thread: `scripts/capi-bench`. */
#include <leeward.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COUNT = 2000000, ROUNDS = 7 };

static uint64_t ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static lw_gate *gate;
static lw_arrival arrival;
static lw_stamp stamp;
static lw_mutex mutex = LW_MUTEX_INIT("bench");
static pthread_mutex_t rival = PTHREAD_MUTEX_INITIALIZER;

static void admitted(void) {
    lw_permit permit;
    if (lw_arrive(gate, &arrival, &permit) != LW_ADMIT || lw_finish(&permit, LW_DONE) != LW_OK) abort();
}

static void rejected(void) {
    lw_permit permit;
    if (lw_arrive(gate, &arrival, &permit) != LW_REJECT) abort();
}

static void locked(void) {
    lw_mutex_lock(&mutex);
    lw_mutex_unlock(&mutex);
}

static void locked_by_pthread(void) {
    pthread_mutex_lock(&rival);
    pthread_mutex_unlock(&rival);
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void measure(const char *name, void (*call)(void)) {
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t began = ns(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < COUNT; i++) call();
        rounds[round] = (double)(ns(CLOCK_THREAD_CPUTIME_ID) - began) / COUNT;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, compare);
    printf("%-44s %6.1f ns (least %.1f)\n", name, rounds[ROUNDS / 2], rounds[0]);
}

int main(void) {
    lw_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.slo_ns = 1000000000;
    options.threads = 2;
    if (lw_gate_new(&gate, &options) != LW_OK) return 1;
    arrival.size = sizeof arrival;
    measure("admitted, no stamp", admitted);
    arrival.stamp = &stamp;
    stamp.received_ns = ns(CLOCK_REALTIME) + 3600000000000; /* Stays at age 0. */
    measure("admitted, stamp", admitted);
    arrival.flags = LW_ARRIVE_ENTER;
    measure("admitted, stamp, entered", admitted);
    arrival.stamp = NULL;
    arrival.waited_ns = 2000000000;
    measure("rejected: late", rejected);
    arrival.waited_ns = 1;
    arrival.left_ns = 1;
    measure("rejected: deadline", rejected);
    measure("lw_mutex, free", locked);
    measure("pthread_mutex, free", locked_by_pthread);
    return 0;
}
