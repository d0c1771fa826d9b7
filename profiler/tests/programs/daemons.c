/* A child forks at once, as `daemon()` and servers with workers do. Each process runs on. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void slow(void) { usleep(20000); }
__attribute__((noinline)) static void slow_in_child(void) {
    for (int i = 0; i < 20; i++)
        slow();
}
__attribute__((noinline)) static void slow_in_grandchild(void) {
    for (int i = 0; i < 20; i++)
        slow();
}

static int is_right(void) {
    int status = 0;
    return wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void) {
    if (fork() == 0) {
        setsid();
        for (int n = 0; n < 2; n++)
            if (fork() == 0) {
                slow_in_grandchild();
                exit(0);
            }
        slow_in_child();
        exit(is_right() && is_right() ? 0 : 1);
    }
    int right = is_right();
    puts(right ? "right" : "wrong");
    return !right;
}
