/* Interface between instrumented code and the run-time. `pass/` makes the one end of it, this library the other; both change
 * together. Nothing else of the run-time is visible to programs but this and leeward_profile.h.
 *
 * Functions are told apart by their addresses. The trace names the modules by build-id, so names and lines are looked up
 * when it is read: a program carries no tables for us, and inlined frames come out as well. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define LW_EXPORT __attribute__((visibility("default")))
#define LW_CACHE_LINE 64

/* ---- tick ------------------------------------------------------------------------------------------------------------
 * `now` (the symbol `__leeward_clock` is its address) is nanoseconds of CLOCK_MONOTONIC, coarse: one thread writes it once
 * per tick and everybody reads it. While nothing records it doesn't change, so instrumented functions find nothing to
 * say. The rest of the line is for the slow path: what it needs first is already there. */
struct lw_clock {
    _Atomic uint64_t now;
    /* Differences that are smaller aren't worth recording. */
    _Atomic uint64_t threshold;
    /* When recording began; a function that was entered before was running already. */
    _Atomic uint64_t began;
    /* Waits and holds of locks that are shorter aren't recorded. Holds are measured by this clock: those that a tick fell into
     * by chance are below their threshold. */
    _Atomic uint64_t lock_threshold, hold_threshold;
    /* Holds of which less is seen on this clock need no closer look: 1, or 0 if every hold is recorded. */
    _Atomic uint64_t hold_least;
    /* `slept`: the value of `now` while the clock is frozen, because the program sleeps. `woke`: the time at which it resumed.
     * A call that started at `slept` counts from `woke`. */
    _Atomic uint64_t slept, woke;
    /* Another line, seldom read. While the clock ticks less often than it was told to, because the machine is busy: `coarse` is 1, and
     * `previous` the value of `now` before this one. */
    _Atomic uint64_t coarse, previous;
    /* 1 while locks are counted. */
    _Atomic uint64_t counting;
};
extern struct lw_clock lw_clock __asm__("__leeward_clock");

/* Called on a function's exit if the clock isn't what it was on entry. A convention that keeps nearly all registers: the
 * instrumented function needs nothing but a compare and a branch that is never taken. */
#define LW_PRESERVE __attribute__((preserve_most))
LW_PRESERVE void __leeward_tick_slow(uint64_t start, uint64_t end, const void *function, const void *caller);

/* ---- scan ------------------------------------------------------------------------------------------------------------
 * Each thread has a stack of {function, generation}, which instrumented code pushes and pops, and another thread reads.
 * Stores are in this order: slot, `generation`, `depth` on entry; `depth` on exit. Slot `d` is only written while `depth`
 * is `d`, so a reader that finds the same generation and depth before and after reading the slots below that depth has
 * read what was there: whoever pushed in between had to move the generation, whoever only popped moved the depth. */
struct lw_slot {
    _Atomic uint64_t function;
    _Atomic uint64_t generation;
};
struct lw_shadow {
    struct lw_slot *slots;
    _Atomic uint64_t depth;
    /* Slots that may be written: 0 while nothing records. Deeper calls are not recorded, but counted by `depth`. */
    _Atomic uint64_t limit;
    _Atomic uint64_t generation;
};
extern __thread struct lw_shadow lw_shadow __asm__("__leeward_shadow") __attribute__((tls_model("initial-exec")));

/* ---- requests by function name -------------------------------------------------------------------------------------- */
uint64_t __leeward_next_request(void);

/* ---- sleds -----------------------------------------------------------------------------------------------------------
 * A function that is instrumented has two bodies. Its own is as it would be without us, but for a nop of five bytes at its entry; the other
 * reads the clock, and is entered by a jump that the run-time writes over the nop while something records. Each program and library has a
 * table of both addresses, as differences from where they are written, in the section `.leeward.sleds`. That is no name of C's, for which
 * linkers would make symbols for begin and end: GNU's keeps all such a section has, and all the code that it names, for whoever mentions them.
 * Instead there is one entry of the run-time's own, and from there the table goes as far as there is `LW_SLED_MAGIC`. */
#define LW_SLED_MAGIC 0x4c575364
struct lw_sled {
    uint32_t magic;
    int32_t entry, twin; /* 0: none */
};
/* A module's table, in memory of that module's: libraries bring theirs when they are loaded, and take it back before they go. */
struct lw_sleds {
    const struct lw_sled *own; /* one of it */
    const void *elf;           /* the module's ELF header, or NULL if it isn't in memory */
    const struct lw_sled *begin, *end;
    struct lw_sleds *next;
    struct lw_sites *sites; /* calls of its functions are counted; or NULL */
    _Bool known, patched;
};
LW_EXPORT void __leeward_sleds_add(struct lw_sleds *sleds);
LW_EXPORT void __leeward_sleds_remove(struct lw_sleds *sleds);

/* One in every program and library: the table's entry, and what the linker says of the module. */
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
