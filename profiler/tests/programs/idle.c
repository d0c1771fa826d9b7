/* Waits until the clock sleeps, and checks that it does: the process then uses next to no CPU. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
__attribute__((noinline)) static void waits(void) { usleep(1500000); }
__attribute__((noinline)) static void short_one(void) { __asm__ volatile(""); }
__attribute__((noinline)) static void works(void) {
    struct timespec t;
    double until;
    clock_gettime(CLOCK_MONOTONIC, &t);
    until = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + 0.1;
    do
        clock_gettime(CLOCK_MONOTONIC, &t);
    while ((double)t.tv_sec + (double)t.tv_nsec * 1e-9 < until);
}

int main(void) {
    usleep(1000000);
    double before = cpu();
    waits();
    int right = cpu() - before < 0.4;
    for (int i = 0; i < 1000; i++)
        short_one();
    works();
    puts(right ? "right" : "wrong");
    return !right;
}
