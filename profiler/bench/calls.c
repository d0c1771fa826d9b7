/* Measures CPU nanoseconds per call: of a tiny leaf, of fib, and of a chain of 20 calls.
 *
 * `profiler/experiments/ld-granularity` compiles this file once per kind of instrumentation. The
 * program prints the median of some rounds for each of the three. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* CPU time of this thread in ns, so other programs do not count. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

__attribute__((noinline)) int leaf(int x) { return x + 1; }

__attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

/* Chain of twenty functions, which the compiler cannot turn into a loop, unlike a recursion. */
#define LAST(name)                                                                                                               \
    __attribute__((noinline)) int name(int x) {                                                                                    \
        __asm__ volatile("" : "+r"(x));                                                                                             \
        return x + 1;                                                                                                                \
    }
#define LINK(name, next)                                                                                                         \
    __attribute__((noinline)) int name(int x) {                                                                                    \
        int y = next(x + 1);                                                                                                        \
        __asm__ volatile("" : "+r"(y));                                                                                              \
        return y + 1;                                                                                                                 \
    }
LAST(c19)
LINK(c18, c19) LINK(c17, c18) LINK(c16, c17) LINK(c15, c16) LINK(c14, c15) LINK(c13, c14) LINK(c12, c13) LINK(c11, c12)
LINK(c10, c11) LINK(c9, c10) LINK(c8, c9) LINK(c7, c8) LINK(c6, c7) LINK(c5, c6) LINK(c4, c5) LINK(c3, c4) LINK(c2, c3)
LINK(c1, c2) LINK(c0, c1)

static double leaves(void) {
    enum { CALLS = 20000000 };
    double began = now();
    int x = 0;
    for (int i = 0; i < CALLS; i++)
        x = leaf(x);
    __asm__ volatile("" : : "r"(x));
    return (now() - began) / CALLS;
}

static double fibs(void) {
    double began = now();
    int x = fib(32);
    __asm__ volatile("" : : "r"(x));
    return (now() - began) / 7049155.0; /* calls of fib(32) before optimisation into loops */
}

static double chains(void) {
    enum { CALLS = 500000 };
    double began = now();
    int x = 0;
    for (int i = 0; i < CALLS; i++)
        x = c0(x);
    __asm__ volatile("" : : "r"(x));
    return (now() - began) / CALLS;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double (*what)(void), int rounds) {
    double *all = malloc(sizeof(double) * (size_t)rounds);
    for (int i = 0; i < rounds; i++)
        all[i] = what();
    qsort(all, (size_t)rounds, sizeof *all, compare);
    double middle = all[rounds / 2];
    free(all);
    return middle;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 5;
    double a = median(leaves, rounds), b = median(fibs, rounds), c = median(chains, rounds);
    printf("%.3f %.3f %.2f\n", a, b, c);
    return 0;
}
