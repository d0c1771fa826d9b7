/* fork in a program with threads: the child runs on, ends by `_exit`. vfork and exec work, too. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void slow_in_child(void) {
    for (int i = 0; i < 30; i++)
        usleep(10000);
}
__attribute__((noinline)) static void slow_in_parent(void) { usleep(3000); }
static pthread_mutex_t locks_child = PTHREAD_MUTEX_INITIALIZER; /* `lock` may stay held there */
static void *busy(void *argument) {
    pthread_mutex_t *mine = argument;
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(mine);
        usleep(100);
        pthread_mutex_unlock(mine);
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, busy, &lock);
    slow_in_parent();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_t other;
        slow_in_child();
        pthread_create(&other, NULL, busy, &locks_child);
        pthread_join(other, NULL);
        _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    pthread_join(thread, NULL);
    int right = WIFEXITED(status) && WEXITSTATUS(status) == 7;
    right &= system("true") == 0;
    slow_in_parent();
    puts(right ? "right" : "wrong");
    return !right;
}
