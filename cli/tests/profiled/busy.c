/* 200 calls of 2 ms of CPU time each; prints their median duration by an exact clock, in ns. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CALLS 200

static long now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) static long works(void) {
    long turns = 0;
    for (long begin = now(CLOCK_THREAD_CPUTIME_ID); now(CLOCK_THREAD_CPUTIME_ID) - begin < 2000000; turns++)
        for (volatile int i = 0; i < 1000; i++)
            continue;
    return turns;
}

static int compare(const void *a, const void *b) {
    long one = *(const long *)a, other = *(const long *)b;
    return one < other ? -1 : one > other;
}

int main(void) {
    static long took[CALLS];
    long turns = 0;
    for (int call = 0; call < CALLS; call++) {
        long begin = now(CLOCK_MONOTONIC);
        turns += works();
        took[call] = now(CLOCK_MONOTONIC) - begin;
        usleep(3000);
    }
    qsort(took, CALLS, sizeof *took, compare);
    printf("median %ld\n", took[CALLS / 2]);
    return turns == 0;
}
