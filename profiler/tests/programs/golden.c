/* Short program for the golden trace (profiler/tool/tests/golden): 40 requests. The 20th waits for
 * a lock that another thread holds while it writes a journal; the 30th is parsed for long. */
#include "leeward_profile.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;
static volatile unsigned long table[64];

static void spins(unsigned microseconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t until = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + microseconds * 1000ull;
    do {
        table[microseconds % 64]++;
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec < until);
}

__attribute__((noinline)) static void parses(unsigned microseconds) { spins(microseconds); }

__attribute__((noinline)) static void looks_up(void) {
    pthread_mutex_lock(&table_lock);
    spins(5);
    pthread_mutex_unlock(&table_lock);
}

__attribute__((noinline)) static void writes_journal(void) {
    pthread_mutex_lock(&table_lock);
    pthread_barrier_wait(&held);
    spins(4000);
    pthread_mutex_unlock(&table_lock);
}

static void *journal(void *unused) {
    (void)unused;
    pthread_barrier_wait(&held);
    writes_journal();
    return NULL;
}

__attribute__((noinline)) static void serves(uint64_t id) {
    leeward_req_start(id, NULL);
    parses(id == 30 ? 2000 : 20);
    looks_up();
    leeward_req_end(id);
}

int main(void) {
    pthread_t other;
    pthread_barrier_init(&held, NULL, 2);
    if (pthread_create(&other, NULL, journal, NULL) != 0)
        return 2;
    for (uint64_t id = 1; id <= 40; id++) {
        if (id == 20) {
            pthread_barrier_wait(&held); /* now the journal's thread takes the lock */
            pthread_barrier_wait(&held); /* now it has the lock */
        }
        serves(id);
        usleep(500);
    }
    pthread_join(other, NULL);
    puts("right");
    return 0;
}
