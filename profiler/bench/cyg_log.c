/* Hooks for -finstrument-functions that trace calls, as a hand-written tracer does.
 *
 * A thread keeps the time stamp of each call until the call returns. Calls of at least 1 us go to a
 * ring in memory. Nothing is written to a file, so a real tracer costs more. */
#include <stdint.h>
#include <time.h>

#define QUIET __attribute__((no_instrument_function))
#define DEPTH 256
#define RING 65536 /* a power of two */

static __thread struct {
    unsigned depth, head;
    uint64_t began[DEPTH];
    struct {
        void *function, *caller;
        uint64_t began, ended;
    } ring[RING];
} mine __attribute__((tls_model("initial-exec")));

static inline QUIET uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

QUIET void __cyg_profile_func_enter(void *function, void *site) {
    (void)function, (void)site;
    unsigned depth = mine.depth++;
    if (depth < DEPTH)
        mine.began[depth] = now();
}
QUIET void __cyg_profile_func_exit(void *function, void *site) {
    unsigned depth = --mine.depth;
    if (depth >= DEPTH)
        return;
    uint64_t end = now(), began = mine.began[depth];
    if (end - began < 1000)
        return;
    unsigned at = mine.head++ % RING;
    mine.ring[at].function = function;
    mine.ring[at].caller = site;
    mine.ring[at].began = began;
    mine.ring[at].ended = end;
}
