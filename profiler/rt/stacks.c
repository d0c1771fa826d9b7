/* Stacks of threads at the moments in which requests began to wait: the table keeps each stack
 * once, under a number.
 *
 * Return addresses are found by frame pointers. `leeward cargo` compiles with them, and so is
 * Rust's standard library. Elsewhere the chain ends early, or holds values that are no addresses of
 * code, which the reader leaves out. Memory is read only between the given frame and the end of the
 * thread's stack. */
#include "rt.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACKS 2048u
#define PROBES 16u
#define DEPTH 24u

struct stack {
    /* Hash of the addresses; 0 while the slot is free, 1 while a thread writes it. */
    _Atomic uint64_t hash;
    _Atomic uint32_t number;
    uint32_t depth;
    uint64_t addresses[DEPTH];
};

static struct stack table[STACKS];
/* Stacks by number, from 1 on. */
static struct stack *_Atomic known[STACKS + 1];
static _Atomic uint32_t count;

/* End of this thread's stack; 0 before the first use, 1 if it is unknown. */
static __thread uintptr_t end_of_stack LW_INITIAL_EXEC;

/* Where the main thread's stack ended when the program began. */
extern void *__libc_stack_end __attribute__((weak, visibility("default")));

static uintptr_t find_end(void) {
    /* For the main thread the library would open a file of /proc. */
    if (syscall(SYS_gettid) == getpid())
        return &__libc_stack_end && __libc_stack_end ? (uintptr_t)__libc_stack_end : 1;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return 1;
    void *start;
    size_t size;
    bool ok = pthread_attr_getstack(&attributes, &start, &size) == 0;
    pthread_attr_destroy(&attributes);
    return ok ? (uintptr_t)start + size : 1;
}

/* Reads the return addresses of a frame and those around it. */
static uint32_t read_stack(const void *frame, uint64_t *addresses) {
    if (end_of_stack == 0)
        end_of_stack = find_end();
    uintptr_t at = (uintptr_t)frame, end = end_of_stack;
    uint32_t depth = 0;
    while (depth < DEPTH && at % sizeof(uintptr_t) == 0 && at < end && end - at >= 2 * sizeof(uintptr_t)) {
        const uintptr_t *words = (const uintptr_t *)at;
        addresses[depth++] = words[1];
        /* Frames around a frame are nearer to the stack's end. */
        if (words[0] <= at)
            break;
        at = words[0];
    }
    return depth;
}

uint32_t lw_stack_number(const void *frame) {
    uint64_t addresses[DEPTH];
    uint32_t depth = read_stack(frame, addresses);
    if (depth == 0)
        return 0;
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t at = 0; at < depth; at++) {
        hash = (hash ^ addresses[at]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    hash |= 2;
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        struct stack *stack = &table[(hash + probe) % STACKS];
        uint64_t there = atomic_load_explicit(&stack->hash, memory_order_acquire);
        if (there == 0 && atomic_compare_exchange_strong(&stack->hash, &there, 1)) {
            memcpy(stack->addresses, addresses, depth * sizeof *addresses);
            stack->depth = depth;
            uint32_t number = atomic_fetch_add(&count, 1) + 1;
            atomic_store(&stack->number, number);
            atomic_store(&known[number], stack);
            atomic_store_explicit(&stack->hash, hash, memory_order_release);
            return number;
        }
        /* Another thread is writing this slot. */
        while (there == 1)
            there = atomic_load_explicit(&stack->hash, memory_order_acquire);
        if (there == hash && stack->depth == depth && memcmp(stack->addresses, addresses, depth * sizeof *addresses) == 0)
            return atomic_load_explicit(&stack->number, memory_order_relaxed);
    }
    return 0;
}

uint32_t lw_stacks_encode(struct lw_payload *p, uint32_t from) {
    uint32_t until = from;
    while (until < STACKS && atomic_load_explicit(&known[until + 1], memory_order_acquire))
        until++;
    if (until == from)
        return from;
    if (until - from > p->room / (DEPTH * 8 + 8))
        until = from + p->room / (DEPTH * 8 + 8);
    lw_put_varint(p, until - from);
    for (uint32_t number = from + 1; number <= until; number++) {
        const struct stack *stack = atomic_load_explicit(&known[number], memory_order_relaxed);
        lw_put_varint(p, number);
        lw_put_varint(p, stack->depth);
        for (uint32_t at = 0; at < stack->depth; at++)
            lw_put_u64(p, stack->addresses[at]);
    }
    return until;
}
