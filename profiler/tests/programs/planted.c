/* Server with a planted bug: `planted rare|holder|descheduled`. Requests count from 1, marked by
 * leeward_profile.h. Culprits: parses_long_input, writes_journal, a second thread on this CPU. */
#define _GNU_SOURCE
#include "leeward_profile.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long table[64];
static atomic_int over;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
__attribute__((noinline)) static void works(unsigned long turns) {
    for (unsigned long i = 0; i < turns; i++)
        table[i % 64] += i;
}

__attribute__((noinline)) static void parses_input(int n, unsigned long turns) { works(turns + (unsigned long)n % 7); }
__attribute__((noinline)) static void parses_long_input(int n) { works(600000 + (unsigned long)n % 7); }
__attribute__((noinline)) static void looks_up(int n) {
    pthread_mutex_lock(&table_lock);
    works(500 + (unsigned long)n % 7);
    pthread_mutex_unlock(&table_lock);
}
__attribute__((noinline)) static void serves(int n, unsigned long turns, int rare) {
    leeward_req_start((uint64_t)n, NULL);
    parses_input(n, turns);
    if (rare && n % 300 == 0)
        parses_long_input(n);
    looks_up(n);
    leeward_req_end((uint64_t)n);
}

/* Holds the lock while it writes to the disk. */
__attribute__((noinline)) static void writes_journal(int file, const char *bytes, size_t length) {
    pthread_mutex_lock(&table_lock);
    for (uint64_t until = now() + 6000000; now() < until;)
        if (pwrite(file, bytes, length, 0) < 0 || fdatasync(file) != 0)
            abort();
    pthread_mutex_unlock(&table_lock);
}
static void *journal(void *unused) {
    (void)unused;
    static char bytes[65536];
    char path[] = "/tmp/planted-XXXXXX";
    int file = mkstemp(path);
    if (file < 0)
        abort();
    unlink(path);
    while (!atomic_load(&over)) {
        usleep(60000);
        writes_journal(file, bytes, sizeof bytes);
    }
    close(file);
    return NULL;
}

static void *rival(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        for (uint64_t until = now() + 8000000; now() < until;)
            ;
        usleep(40000);
    }
    return NULL;
}

int main(int count, char **arguments) {
    const char *bug = count > 1 ? arguments[1] : "";
    pthread_t other;
    void *(*beside)(void *) = strcmp(bug, "holder") == 0 ? journal : strcmp(bug, "descheduled") == 0 ? rival : NULL;
    if (beside == rival) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((unsigned)sched_getcpu(), &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    if (beside && pthread_create(&other, NULL, beside, NULL) != 0)
        return 2;
    uint64_t until = now() + 1000000000;
    int requests = 0;
    while (now() < until && requests < 20000) {
        /* Long requests without a pause in between lose their CPU. */
        serves(++requests, beside == rival ? 30000 : 2000, strcmp(bug, "rare") == 0);
        if (beside != rival)
            usleep(50);
    }
    atomic_store(&over, 1);
    if (beside)
        pthread_join(other, NULL);
    puts(requests > 300 ? "right" : "too slow");
    return 0;
}
