/* Deep recursions that return at once: more calls end together than a ring of fixed size holds. */
#include <pthread.h>
#include <stdio.h>

#define DEPTH 60000

__attribute__((noinline)) static long down(long depth) {
    volatile char frame[16];
    frame[0] = (char)depth;
    return depth == 0 ? 0 : down(depth - 1) + 1 + 0 * frame[0];
}

static void *deep(void *turns) {
    for (long turn = 0; turn < 4; turn++)
        *(long *)turns += down(DEPTH);
    return NULL;
}

int main(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64u << 20);
    long steps = 0;
    int right = pthread_create(&thread, &attributes, deep, &steps) == 0 && pthread_join(thread, NULL) == 0;
    right &= steps == 4L * DEPTH;
    puts(right ? "right" : "wrong");
    return !right;
}
