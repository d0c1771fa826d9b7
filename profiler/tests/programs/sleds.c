/* `sleds LIBRARY OTHER`, until its input ends: threads run functions, and a library's, while the
 * run-time patches and restores them, and while libraries are loaded and unloaded. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 3

static atomic_bool over;
static atomic_ulong calls, wrong, loads;
static int (*in_library)(void);
/* Volatile, or the compiler would make the same call only once. */
static volatile unsigned seven = 7;

__attribute__((noinline)) static unsigned tiny(unsigned x) {
    for (unsigned bit = 0; bit < (x & 3); bit++)
        x ^= x << (bit + 1);
    return x;
}

__attribute__((noinline)) static unsigned passes_on(unsigned x) { return tiny(x); }

/* Takes some twenty microseconds. */
__attribute__((noinline)) static unsigned works(unsigned from) {
    unsigned sum = 0;
    for (unsigned n = 0; n < 3000; n++)
        sum += passes_on(from + n);
    return sum;
}

/* `qsort`, a library's function, calls it by its address. */
__attribute__((noinline)) static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return passes_on(1) ? (x > y) - (x < y) : 0;
}

static void *caller(void *argument) {
    unsigned expected = works(seven);
    (void)argument;
    while (!atomic_load(&over)) {
        int numbers[64];
        for (int n = 0; n < 64; n++)
            numbers[n] = (n * 37) % 64;
        qsort(numbers, 64, sizeof *numbers, compare);
        for (int n = 0; n < 64; n++)
            if (numbers[n] != n)
                atomic_fetch_add(&wrong, 1);
        if (works(seven) != expected || in_library() != 42)
            atomic_fetch_add(&wrong, 1);
        atomic_fetch_add(&calls, 1);
    }
    return NULL;
}

static void *loader(void *path) {
    while (!atomic_load(&over)) {
        void *library = dlopen(path, RTLD_NOW);
        int (*call)(void) = library ? (int (*)(void))dlsym(library, "quick_in_library") : NULL;
        if (!call || call() != 43)
            atomic_fetch_add(&wrong, 1);
        else
            dlclose(library);
        atomic_fetch_add(&loads, 1);
        usleep(300);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS + 1];
    void *library = count > 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (!library)
        return 1;
    in_library = (int (*)(void))dlsym(library, "quick_in_library");
    in_library() == 43 ? (void)0 : exit(1);
    in_library = (int (*)(void))dlsym(library, "other_in_library");
    for (int n = 0; n < THREADS; n++)
        pthread_create(&threads[n], NULL, caller, NULL);
    pthread_create(&threads[THREADS], NULL, loader, arguments[2]);
    puts("ready");
    fflush(stdout);
    for (char byte; read(0, &byte, 1) > 0;)
        ;
    atomic_store(&over, true);
    for (int n = 0; n <= THREADS; n++)
        pthread_join(threads[n], NULL);
    printf("%s: %lu calls, %lu loads\n", wrong == 0 && calls > 0 && loads > 0 ? "right" : "wrong", calls, loads);
    return 0;
}
