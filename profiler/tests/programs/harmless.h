/* Shared by the programs of tests/harmless.py. Each program uses something of its own, checks that
 * it gets the same results as without a recording, and prints `right`. */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wrong;

#define MUST(what)                                                                                                                            \
    do {                                                                                                                                      \
        if (!(what)) {                                                                                                                        \
            printf("wrong, line %d: %s (%s)\n", __LINE__, #what, strerror(errno));                                                            \
            wrong++;                                                                                                                          \
        }                                                                                                                                     \
    } while (0)

static volatile unsigned sink;

/* Calls that are recorded, for some milliseconds. */
__attribute__((noinline)) static void work_once(void) {
    for (unsigned i = 0; i < 100000; i++)
        sink += i;
}
static inline void work(int times) {
    for (int i = 0; i < times; i++)
        work_once();
}

/* Starts or stops the recording if the run-time handles SIGUSR2, and gives it time to do so. */
static inline void toggle(void) {
    struct sigaction now;
    if (!getenv("HARMLESS_TOGGLE") || sigaction(SIGUSR2, NULL, &now) != 0 || now.sa_handler == SIG_DFL)
        return;
    raise(SIGUSR2);
    usleep(100000);
}

static inline int verdict(void) {
    puts(wrong ? "wrong" : "right");
    return wrong != 0;
}
