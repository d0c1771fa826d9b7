/* Requests and free locks allocate nothing, after the first ones. */
#include "check.h"

#include <leeward.h>
#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *of, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static long allocations;

void *malloc(size_t size) {
    allocations++;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
    allocations++;
    return __libc_calloc(count, size);
}
void *realloc(void *of, size_t size) {
    allocations++;
    return __libc_realloc(of, size);
}
int posix_memalign(void **to, size_t alignment, size_t size) {
    allocations++;
    *to = __libc_memalign(alignment, size);
    return *to ? 0 : 12;
}

static lw_mutex mutex = LW_MUTEX_INIT("allocations");

static void round_of(lw_gate *gate, int number) {
    lw_arrival arrival;
    lw_permit permit;
    memset(&arrival, 0, sizeof arrival);
    arrival.size = sizeof arrival;
    arrival.flags = LW_ARRIVE_ENTER;
    arrival.route = (uint8_t)(number % 7);
    arrival.tenant = (uint32_t)(number % 9);
    arrival.waited_ns = number % 3 ? 1000 : 2000000000; /* A third is late. */
    if (lw_arrive(gate, &arrival, &permit) == LW_ADMIT) {
        EQUAL(LW_OK, lw_mutex_lock_within(&mutex));
        EQUAL(LW_OK, lw_mutex_unlock(&mutex));
        EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    }
}

int main(void) {
    lw_options options;
    lw_gate *gate;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.slo_ns = 1000000000;
    EQUAL(LW_OK, lw_gate_new(&gate, &options));
    for (int i = 0; i < 1000; i++) round_of(gate, i);
    long before = allocations;
    for (int i = 0; i < 100000; i++) round_of(gate, i);
    EQUAL(before, allocations);
    CHECK(before > 0);
    puts("as it should be");
    return 0;
}
