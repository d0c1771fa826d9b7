// A program with known stacks, for tests of the sampler.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))
// After a call: so that it is no jump.
#define NO_TAIL __asm__ volatile("" ::: "memory")

static volatile unsigned long turns;

KEEP void innermost(void) {
    for (unsigned long i = 0; i < 1000000; i++)
        turns += i;
    NO_TAIL;
}

// Frames of several sizes: values that live across the call, and an array.
KEEP unsigned long middle(unsigned long n) {
    volatile unsigned long values[64];
    values[n % 64] = n;
    innermost();
    unsigned long sum = values[n % 64] + n;
    NO_TAIL;
    return sum;
}

KEEP unsigned long outermost(unsigned long n) {
    unsigned long sum = middle(n) * 3 + n;
    NO_TAIL;
    return sum;
}

KEEP void spin(void) {
    for (unsigned long n = 0;; n += outermost(n))
        NO_TAIL;
}

KEEP unsigned long recurse(unsigned long depth) {
    volatile unsigned long frame[8];
    frame[depth % 8] = depth;
    if (depth == 0)
        innermost();
    else
        frame[0] = recurse(depth - 1);
    NO_TAIL;
    return frame[0];
}

KEEP void handler(int signal) {
    (void)signal;
    for (;;)
        middle(1);
}

KEEP void interrupted(void) {
    raise(SIGUSR1);
    NO_TAIL;
}

KEEP void block(void) {
    struct timespec time = {0, 3000000};
    nanosleep(&time, NULL);
    NO_TAIL;
}

KEEP void block_outer(void) {
    block();
    NO_TAIL;
}

KEEP void *sleeper(void *unused) {
    for (;;)
        block_outer();
    return unused;
}

// Runs for several gaps between two samples of 1 ms, however fast the machine is.
static void moment(void) {
    struct timespec time;
    do {
        outermost(1);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    } while (time.tv_sec == 0 && time.tv_nsec < 4000000);
}

static void *short_lived(void *unused) {
    moment();
    return unused;
}

static void yield_forever(void) {
    for (;;)
        sched_yield();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "spin";
    unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    struct sigaction action = {.sa_handler = handler};
    alarm(600);
    if (!strcmp(mode, "spin")) {
        spin();
    } else if (!strcmp(mode, "recurse")) {
        for (;;)
            recurse(count);
    } else if (!strcmp(mode, "signal")) {
        sigaction(SIGUSR1, &action, NULL);
        interrupted();
    } else if (!strcmp(mode, "altstack")) {
        stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        sigaltstack(&stack, NULL);
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGUSR1, &action, NULL);
        interrupted();
    } else if (!strcmp(mode, "block")) {
        sleeper(NULL);
    } else if (!strcmp(mode, "threads")) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 1 << 16);
        for (unsigned long i = 0; i < count; i++) {
            pthread_t thread;
            pthread_create(&thread, &attributes, sleeper, NULL);
        }
        puts("ready");
        fflush(stdout);
        sleeper(NULL);
    } else if (!strcmp(mode, "births")) {
        // Threads that live for a moment.
        for (;;) {
            pthread_t thread;
            pthread_create(&thread, NULL, short_lived, NULL);
            pthread_setname_np(thread, "brief");
            pthread_join(thread, NULL);
        }
    } else if (!strcmp(mode, "forks")) {
        for (;;) {
            pid_t child = fork();
            if (child == 0) {
                moment();
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
    } else if (!strcmp(mode, "exec")) {
        // Becomes itself again, which spins.
        usleep(200000);
        execl("/proc/self/exe", "again", "spin", (char *)NULL);
    } else if (!strcmp(mode, "yield")) {
        yield_forever();
    } else if (!strcmp(mode, "end")) {
        usleep(count * 1000);
    }
    return 0;
}
