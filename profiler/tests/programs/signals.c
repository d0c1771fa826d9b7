/* Instrumented signal handlers that interrupt instrumented code, and its slow path. */
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

static volatile long handled, worked;

__attribute__((noinline)) static void in_handler(int n) {
    for (volatile int i = 0; i < n; i++)
        ;
}
static void handler(int number) {
    (void)number;
    handled++;
    in_handler(3000);
}
__attribute__((noinline)) static void work(void) {
    for (volatile int i = 0; i < 2000; i++)
        ;
    worked++;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (handled < 500)
        work();
    puts("right");
    return 0;
}
