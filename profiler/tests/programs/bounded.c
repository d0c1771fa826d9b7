/* Events without end: more than any budget. */
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t locks[64];

__attribute__((noinline)) static void hold(int which) {
    pthread_mutex_lock(&locks[which]);
    __asm__ volatile("");
    pthread_mutex_unlock(&locks[which]);
}

int main(void) {
    for (int i = 0; i < 64; i++)
        pthread_mutex_init(&locks[i], NULL);
    for (int i = 0; i < 3000000; i++)
        hold(i * 7 % 64);
    puts("right");
    return 0;
}
