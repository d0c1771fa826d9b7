/* One thread holds a lock for long, another waits for it; a condition, an rwlock, a semaphore. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t open_now = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t both = PTHREAD_RWLOCK_INITIALIZER;
static sem_t begun;
static int is_open;

__attribute__((noinline)) static void holds_for_long(void) {
    pthread_mutex_lock(&lock);
    sem_post(&begun);
    usleep(20000);
    pthread_mutex_unlock(&lock);
}
__attribute__((noinline)) static void waits_for_it(void) {
    sem_wait(&begun);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}
__attribute__((noinline)) static void writes(void) {
    pthread_rwlock_wrlock(&both);
    usleep(2000);
    pthread_rwlock_unlock(&both);
    pthread_rwlock_rdlock(&both);
    usleep(2000);
    pthread_rwlock_unlock(&both);
}
static void *other(void *argument) {
    holds_for_long();
    usleep(3000);
    pthread_mutex_lock(&gate);
    is_open = 1;
    pthread_cond_signal(&open_now);
    pthread_mutex_unlock(&gate);
    return argument;
}

int main(void) {
    pthread_t thread;
    int right = 1;
    sem_init(&begun, 0, 0);
    pthread_create(&thread, NULL, other, NULL);
    waits_for_it();
    pthread_mutex_lock(&gate);
    while (!is_open)
        pthread_cond_wait(&open_now, &gate);
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 1000000;
    if (soon.tv_nsec >= 1000000000)
        soon.tv_sec++, soon.tv_nsec -= 1000000000;
    right &= pthread_cond_timedwait(&open_now, &gate, &soon) == ETIMEDOUT;
    pthread_mutex_unlock(&gate);
    pthread_join(thread, NULL);
    writes();
    pthread_mutexattr_t checks;
    pthread_mutex_t checked;
    pthread_mutexattr_init(&checks);
    pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checked, &checks);
    right &= pthread_mutex_lock(&checked) == 0 && pthread_mutex_lock(&checked) == EDEADLK;
#if defined(__has_feature) && !__has_feature(thread_sanitizer) /* it reports the second one */
    right &= pthread_mutex_unlock(&checked) == 0 && pthread_mutex_unlock(&checked) == EPERM;
#endif
    puts(right ? "right" : "wrong");
    return !right;
}
