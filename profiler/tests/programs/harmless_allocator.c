/* Has an allocator that locks: the run-time must not allocate when a thread first takes a lock. */
#include "harmless.h"

#include <pthread.h>
#include <stdbool.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char memory[64 << 20] __attribute__((aligned(16)));
static size_t used;

void *malloc(size_t size) {
    if (pthread_mutex_trylock(&lock) != 0)
        pthread_mutex_lock(&lock);
    char *block = memory + used;
    used += (size + 31) & ~(size_t)15;
    bool full = used > sizeof memory;
    pthread_mutex_unlock(&lock);
    if (full)
        return NULL;
    *(size_t *)block = size;
    return block + 16;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t size) {
    void *block = malloc(count * size);
    return block ? memset(block, 0, count * size) : NULL;
}

void *realloc(void *old, size_t size) {
    void *block = malloc(size);
    if (block && old)
        memcpy(block, old, ((size_t *)old)[-2] < size ? ((size_t *)old)[-2] : size);
    return block;
}

static void *allocates(void *unused) {
    for (int i = 0; i < 1000; i++) {
        work(i % 100 == 0);
        MUST(malloc(100) != NULL);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, allocates, NULL) == 0);
    toggle();
    allocates(NULL);
    MUST(pthread_join(thread, NULL) == 0);
    return verdict();
}
