/* Load for the granularity of the engines: STACKS stacks of DEPTH calls, one after the other.
 *
 * `depth refresh STACKS NS DEPTH`: the deepest call of each stack spins for NS nanoseconds, then
 * all calls return (thesis §3.6.1, figure 3.16).
 *
 * `depth exact STACKS NS DEPTH`: each call spins for NS before and after the next call. The program
 * prints the exact begin and end of each call, to be compared with the trace. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct {
    uint64_t began, ended;
} *exact;
static long calls, room;

static inline __attribute__((always_inline)) void spin(uint64_t length) {
    uint64_t until = now() + length;
    while (now() < until)
        ;
}

__attribute__((noinline)) static void stack(int n, uint64_t length) {
    if (n > 1)
        stack(n - 1, length);
    else
        spin(length);
    __asm__ volatile("");
}

__attribute__((noinline)) static void level(int n, uint64_t length) {
    uint64_t began = now();
    spin(length);
    if (n > 1)
        level(n - 1, length);
    spin(length);
    if (calls < room) {
        exact[calls].began = began;
        exact[calls++].ended = now();
    }
}

int main(int count, char **arguments) {
    if (count != 5)
        return 2;
    int stacks = atoi(arguments[2]);
    uint64_t length = (uint64_t)atoll(arguments[3]);
    int deep = atoi(arguments[4]);
    if (strcmp(arguments[1], "refresh") == 0) {
        for (int i = 0; i < stacks; i++)
            stack(deep, length);
        return 0;
    }
    room = (long)stacks * deep;
    exact = malloc(sizeof *exact * (size_t)room);
    for (int i = 0; i < stacks; i++)
        level(deep, length);
    for (long i = 0; i < calls; i++)
        printf("%llu %llu\n", (unsigned long long)exact[i].began, (unsigned long long)exact[i].ended);
    return 0;
}
