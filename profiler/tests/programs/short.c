/* Calls short functions all the time, and a slow one every 10 ms: `short SECONDS`. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned turns = 3;

__attribute__((noinline)) static unsigned tiny(unsigned x) {
    for (unsigned n = 0; n < turns; n++)
        x ^= x << 1;
    return x;
}

__attribute__((noinline)) static unsigned small(unsigned x) { return tiny(x) + tiny(x + 1); }

__attribute__((noinline)) static unsigned hundred(unsigned x) {
    unsigned sum = 0;
    for (unsigned n = 0; n < 100; n++)
        sum += small(x + n);
    return sum;
}

__attribute__((noinline)) static void slow(void) { usleep(2000); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    double end = now() + (count > 1 ? atof(arguments[1]) : 1), next = 0;
    unsigned sum = 0, slows = 0;
    while (now() < end) {
        for (unsigned n = 0; n < 100; n++)
            sum += hundred(sum + n);
        if (now() > next) {
            slow();
            slows++;
            next = now() + 0.01;
        }
    }
    printf("right %u %u\n", slows, sum);
    return 0;
}
