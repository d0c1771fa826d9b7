/* Threads that admit, pass on, run and end requests, with locks of every kind, while others read
   the counters and a gate is freed. For the thread sanitizer. */
#include "check.h"

#include <leeward.h>
#include <pthread.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__)
/* The sanitizer does not see the library's own memory accesses, and has to be told. */
void __tsan_acquire(void *at);
void __tsan_release(void *at);
#define ACQUIRED(lock) __tsan_acquire(lock)
#define RELEASES(lock) __tsan_release(lock)
#else
#define ACQUIRED(lock) (void)(lock)
#define RELEASES(lock) (void)(lock)
#endif

enum { THREADS = 8, ROUNDS = 400 };

static lw_gate *gate;
static lw_mutex mutex = LW_MUTEX_INIT("threads: counter");
static lw_rwlock table = LW_RWLOCK_INIT("threads: table");
static lw_sem slots = LW_SEM_INIT("threads: slots", 2);
static long counter, entries[2];
static int inside;

static void work(void) {
#if !defined(CANARY) /* Without the lock, the sanitizer must find the race. */
    EQUAL(LW_OK, lw_mutex_lock(&mutex));
    ACQUIRED(&mutex);
#endif
    counter++;
#if !defined(CANARY)
    RELEASES(&mutex);
    EQUAL(LW_OK, lw_mutex_unlock(&mutex));
#endif
    EQUAL(LW_OK, lw_rwlock_write(&table));
    ACQUIRED(&table);
    entries[0]++;
    entries[1]++;
    RELEASES(&table);
    EQUAL(LW_OK, lw_rwlock_unlock(&table));
    EQUAL(LW_OK, lw_rwlock_read(&table));
    ACQUIRED(&table);
    CHECK(entries[0] == entries[1]);
    RELEASES(&table);
    EQUAL(LW_OK, lw_rwlock_unlock(&table));
    EQUAL(LW_OK, lw_sem_wait(&slots));
    CHECK(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) <= 2);
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    EQUAL(LW_OK, lw_sem_post(&slots));
}

static void *finish(void *of) {
    EQUAL(LW_OK, lw_finish((lw_permit *)of, LW_DONE));
    return NULL;
}

static void *serve(void *of) {
    lw_arrival arrival;
    lw_permit permit;
    long admitted = 0;
    (void)of;
    memset(&arrival, 0, sizeof arrival);
    arrival.size = sizeof arrival;
    for (int round = 0; round < ROUNDS; round++) {
        arrival.flags = round % 2 ? LW_ARRIVE_ENTER : 0;
        arrival.route = (uint8_t)(round % 5);
        arrival.tenant = (uint32_t)(round % 3);
        int decided = lw_arrive(gate, &arrival, &permit);
        if (decided == LW_REJECT) continue;
        EQUAL(LW_ADMIT, decided);
        admitted++;
        if (!arrival.flags) EQUAL(LW_OK, lw_enter(&permit));
        work();
        if (round % 50 == 0) {
            pthread_t other;
            EQUAL(LW_OK, lw_leave(&permit));
            CHECK(pthread_create(&other, NULL, finish, &permit) == 0);
            CHECK(pthread_join(other, NULL) == 0);
        } else {
            EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
        }
        EQUAL(LW_E_STATE, lw_finish(&permit, LW_DONE));
    }
    return (void *)admitted;
}

static void *observe(void *stop) {
    static char text[1 << 16];
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE)) {
        CHECK(lw_stats_json(gate, text, sizeof text) > 0);
        (void)lw_gate_delay_ns(gate);
        (void)lw_mutex_delay_ns(&mutex);
    }
    return NULL;
}

/* Counts on with a gate that is freed beneath. */
static void *use_until_closed(void *of) {
    lw_arrival arrival;
    lw_permit permit;
    (void)of;
    memset(&arrival, 0, sizeof arrival);
    arrival.size = sizeof arrival;
    for (;;) {
        int decided = lw_arrive(gate, &arrival, &permit);
        if (decided == LW_E_CLOSED) return NULL;
        if (decided == LW_ADMIT) EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    }
}

int main(void) {
    lw_options options;
    pthread_t threads[THREADS], observer;
    int stop = 0;
    long admitted = 0;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.slo_ns = 10000000000;
    options.threads = THREADS;
    EQUAL(LW_OK, lw_gate_new(&gate, &options));
    CHECK(pthread_create(&observer, NULL, observe, &stop) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, serve, NULL) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *of;
        CHECK(pthread_join(threads[i], &of) == 0);
        admitted += (long)of;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(observer, NULL) == 0);
    CHECK(admitted > 0);
    EQUAL(admitted, counter);
    EQUAL(admitted, entries[1]);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, use_until_closed, NULL) == 0);
    while (lw_gate_free(gate) == LW_E_BUSY) {
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    EQUAL(LW_OK, lw_mutex_destroy(&mutex));
    puts("as it should be");
    return 0;
}
