/* Ten thousand threads, 25 at a time, each with a call and a lock to record. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

__attribute__((noinline)) static void slow(long n) {
    pthread_mutex_lock(&lock);
    total += n;
    if (n % 64 == 0)
        usleep(50);
    pthread_mutex_unlock(&lock);
}
static void *run(void *argument) {
    slow((long)argument);
    return argument;
}

int main(void) {
    enum { THREADS = 10000, AT_ONCE = 25 };
    pthread_t threads[AT_ONCE];
    for (long i = 0; i < THREADS; i += AT_ONCE) {
        for (int j = 0; j < AT_ONCE; j++)
            if (pthread_create(&threads[j], NULL, run, (void *)(i + j)) != 0)
                return 2;
        for (int j = 0; j < AT_ONCE; j++)
            pthread_join(threads[j], NULL);
    }
    int right = total == (long)THREADS * (THREADS - 1) / 2;
    puts(right ? "right" : "wrong");
    return !right;
}
