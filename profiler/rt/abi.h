/* Interface between instrumented code (`pass/`) and the run-time (this library). Both change
 * together. Programs see nothing of the run-time except this file and leeward_profile.h.
 *
 * An event identifies a function by its address. The trace identifies modules by build-id, and the
 * reader looks up names and lines. So a program carries no symbol tables for the profiler, and the
 * reader also finds inlined frames. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define LW_EXPORT __attribute__((visibility("default")))
#define LW_CACHE_LINE 64

/* ---- tick ---------------------------------------------------------------------------------------
 * Line of the coarse clock, read by instrumented code. `__leeward_clock` is the address of `now`.
 *
 * `now` is in nanoseconds of CLOCK_MONOTONIC. The clock thread writes it once per tick; all threads
 * read it. While nothing records, `now` does not change, so instrumented functions record nothing.
 * The slow path needs the other fields of the line; its thread has just loaded that line to read
 * `now`. */
struct lw_clock {
    _Atomic uint64_t now;
    /* Shortest difference of the clock that is recorded as a call. */
    _Atomic uint64_t threshold;
    /* Start of the recording. A function that was entered before was already running. */
    _Atomic uint64_t began;
    /* Shortest wait for a lock, and shortest hold of a lock, that are recorded. Holds are measured
     * by this clock. So `hold_threshold` exceeds the time that a short hold seems to last when a
     * tick falls into it. */
    _Atomic uint64_t lock_threshold, hold_threshold;
    /* Shorter holds on this clock take the fast path: 1, or 0 if every hold is recorded. */
    _Atomic uint64_t hold_least;
    /* `slept`: value of `now` while the clock is frozen, because the program is idle. `woke`: time
     * at which the clock resumed. A call that started at `slept` counts from `woke`. */
    _Atomic uint64_t slept, woke;
    /* Second line, seldom read. `coarse` is 1 while the clock ticks less often than configured
     * because the machine is busy. `previous` is then the value of `now` before the current one. */
    _Atomic uint64_t coarse, previous;
    /* 1 while acquired locks are counted. */
    _Atomic uint64_t counting;
};
extern struct lw_clock lw_clock __asm__("__leeward_clock");

/* Slow path: a function calls it on exit if the clock has moved since entry.
 *
 * The calling convention preserves nearly all registers. So the instrumented function needs only a
 * comparison and a branch, which is seldom taken. */
#define LW_PRESERVE __attribute__((preserve_most))
LW_PRESERVE void __leeward_tick_slow(uint64_t start, uint64_t end, const void *function, const void *caller);

/* ---- scan ---------------------------------------------------------------------------------------
 * Shadow stack of one thread: {function, generation} per call. Instrumented code pushes and pops
 * entries; the scanner reads them.
 *
 * On entry a thread stores the slot, then `generation`, then `depth`. On exit it stores `depth`. A
 * thread writes slot `d` only while `depth` is `d`. The scanner reads generation and depth, then
 * the slots below that depth, then generation and depth again. If both are unchanged, the slots are
 * consistent: a push changes the generation, and a pop alone changes the depth. */
struct lw_slot {
    _Atomic uint64_t function;
    _Atomic uint64_t generation;
};
struct lw_shadow {
    struct lw_slot *slots;
    _Atomic uint64_t depth;
    /* Number of writable slots; 0 while nothing records. Deeper calls only change `depth` and are
     * not recorded. */
    _Atomic uint64_t limit;
    _Atomic uint64_t generation;
};
extern __thread struct lw_shadow lw_shadow __asm__("__leeward_shadow") __attribute__((tls_model("initial-exec")));

/* ---- requests by function name --------------------------------------------------------------- */
uint64_t __leeward_next_request(void);

/* ---- requests that are futures ------------------------------------------------------------------
 * For the crate leeward-trace. Numbers that are no addresses, because no memory is mapped there,
 * name queues (docs/trace-format.md). */
#define LW_QUEUE_READY 257u
#define LW_QUEUE_NAMED 0x4000u
#define LW_QUEUE_STACK 0x8000u
/* Whether a recording is running. */
int __leeward_recording(void);
/* Queue of requests that wait for what has this name; 0 if there is no room for the name. */
uint64_t __leeward_named_queue(const char *name);
/* Queue of requests that wait where this thread is now: for the return addresses on its stack, as
 * far as there are frame pointers; 0 if there are none. */
uint64_t __leeward_stack_queue(void);

/* ---- sleds --------------------------------------------------------------------------------------
 * Table of instrumented functions. Such a function has two bodies: its own, and an instrumented
 * copy (`twin`).
 *
 * The own body is uninstrumented, except for a nop of five bytes at its entry. The copy reads the
 * clock. While something records, the run-time replaces the nop by a jump to the copy.
 *
 * Each program and library has a table of both addresses in the section `.leeward.sleds`. The table
 * stores addresses as differences from the field's own address. The section's name is deliberately
 * no C identifier. For a C identifier, linkers define symbols for the section's begin and end.
 * GNU's linker keeps the whole section, and all code that it names, if anything refers to those
 * symbols. Instead the run-time adds one entry of its own. From there the table extends in both
 * directions as long as entries begin with `LW_SLED_MAGIC`. */
#define LW_SLED_MAGIC 0x4c575364
struct lw_sled {
    uint32_t magic;
    int32_t entry, twin; /* 0: none */
};
/* Table of one module, in that module's memory. A library adds its table when it is loaded, and
 * removes it before it is unloaded. */
struct lw_sleds {
    const struct lw_sled *own; /* run-time's own entry in the table */
    const void *elf;           /* module's ELF header; NULL if not in memory */
    const struct lw_sled *begin, *end;
    struct lw_sleds *next;
    struct lw_sites *sites; /* call counters of its functions; or NULL */
    _Bool known, patched;
};
LW_EXPORT void __leeward_sleds_add(struct lw_sleds *sleds);
LW_EXPORT void __leeward_sleds_remove(struct lw_sleds *sleds);

/* Defines the own entry and the `lw_sleds` of one module. Every program and library has one. */
#if defined(__x86_64__)
#define LW_DECLARE_SLEDS                                                                                                                      \
    __asm__(".section .leeward.sleds,\"ao\",@progbits,.text\n.balign 4\n"                                                                     \
            "lw_own_sled: .long 0x4c575364, 0, 0\n.text");                                                                                    \
    extern __attribute__((visibility("hidden"))) const struct lw_sled lw_own_sled;                                                            \
    extern __attribute__((weak, visibility("hidden"))) const char __ehdr_start[];                                                             \
    static struct lw_sleds own_sleds = {.own = &lw_own_sled, .elf = __ehdr_start};
#else
#define LW_DECLARE_SLEDS static struct lw_sleds own_sleds;
#endif
