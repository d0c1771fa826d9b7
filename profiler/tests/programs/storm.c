/* Forks many children, one after the other, while other threads work; some children fork again. No
 * child may wait for something that only the parent has. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int over;

__attribute__((noinline)) static void works(int n) {
    for (volatile int i = 0; i < n; i++)
        ;
}
static void *busy(void *mine) {
    while (!atomic_load(&over)) {
        pthread_mutex_lock(mine);
        works(1000);
        pthread_mutex_unlock(mine);
    }
    return NULL;
}
static int wait_for(pid_t child) {
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7;
}
static _Noreturn void be_child(int n) {
    works(10000);
    if (n % 10 == 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(7);
        if (!wait_for(child))
            _exit(1);
    }
    if (n % 2)
        exit(7);
    _exit(7);
}

int main(int count, char **arguments) {
    int children = count > 1 ? atoi(arguments[1]) : 100;
    pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, busy, &locks[i]);
    int right = 1;
    for (int n = 0; n < children && right; n++) {
        pid_t child = fork();
        if (child == 0)
            be_child(n);
        right = wait_for(child);
    }
    atomic_store(&over, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    puts(right ? "right" : "wrong");
    return !right;
}
