/* Switches its own recording on and off by a signal; `toggled serve` only makes calls. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) static void before_recording(void) { usleep(3000); }
__attribute__((noinline)) static void while_recording(void) { usleep(3000); }
__attribute__((noinline)) static void after_recording(void) { usleep(3000); }

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "serve") == 0) {
        puts("ready");
        fflush(stdout);
        for (int i = 0; i < 10000; i++)
            while_recording();
        return 0;
    }
    before_recording();
    kill(getpid(), SIGUSR2);
    usleep(300000);
    while_recording();
    usleep(100000);
    kill(getpid(), SIGUSR2);
    usleep(300000);
    after_recording();
    puts("right");
    return 0;
}
