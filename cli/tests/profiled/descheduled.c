/* Requests, the calls of handle, lose their CPU to a second thread on the same CPU. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static volatile unsigned long sink;
static volatile int over;

__attribute__((noinline)) static void spin(unsigned long turns) {
    for (unsigned long i = 0; i < turns; i++)
        sink += i;
}

__attribute__((noinline)) void handle(int input) { spin(20000 + input % 7); }

static void *rival(void *unused) {
    (void)unused;
    while (!over) {
        spin(3000000);
        usleep(30000);
    }
    return NULL;
}

int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_t thread;
    pthread_create(&thread, NULL, rival, NULL);
    for (int input = 0; input < 20000; input++)
        handle(input);
    over = 1;
    pthread_join(thread, NULL);
    return 0;
}
