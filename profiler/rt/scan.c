/* Scanner of the `scan` engine (thesis §3.3.2): reads each thread's shadow stack from another
 * thread.
 *
 * A call that has gone from the stack has returned. The scanner writes an event for it if it was
 * there for long enough. */
#include "rt.h"

#include <string.h>
#include <sys/mman.h>

/* Attempts to read a stack whose thread moves on meanwhile. */
#define TRIES 3

/* One call that the scanner has seen. */
struct record {
    uint64_t function, generation, seen;
};

struct lw_scan {
    /* Written by the thread, read by the scanner. */
    _Alignas(LW_CACHE_LINE) struct lw_slot slots[LW_SHADOW_SLOTS];
    /* Belongs to the scanner. */
    struct record records[LW_SHADOW_SLOTS];
    struct record fresh[LW_SHADOW_SLOTS];
    uint32_t count;
    uint64_t depth, generation;
    /* Slots with this or an older generation are left from an earlier time. */
    uint64_t floor;
};

_Atomic uint64_t lw_scans_same, lw_scans_full, lw_scans_raced, lw_scan_mean;

bool lw_scan_prepare(struct lw_thread *thread) {
    if (!thread->scan) {
        void *memory = mmap(NULL, sizeof *thread->scan, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return false;
        thread->scan = memory;
    }
    /* Entries that the thread pushed before it had this stack, or that an earlier thread left in
     * it, are not calls. */
    uint64_t depth = LW_PEEK(lw_shadow.depth);
    for (uint64_t i = 0; i < depth && i < LW_SHADOW_SLOTS; i++)
        LW_POKE(thread->scan->slots[i].generation, 0);
    lw_shadow.slots = thread->scan->slots;
    lw_scan_reset(thread, &lw_shadow);
    return true;
}

void lw_scan_reset(struct lw_thread *thread, const struct lw_shadow *shadow) {
    thread->scan->count = 0;
    thread->scan->depth = UINT64_MAX;
    thread->scan->floor = LW_PEEK(shadow->generation);
}

/* Writes events for the calls above the first `kept`, which have returned. */
static void returned(struct lw_thread *thread, uint32_t kept, uint64_t now, unsigned marks) {
    struct lw_scan *scan = thread->scan;
    for (uint32_t i = scan->count; i-- > kept;) {
        const struct record *record = &scan->records[i];
        if (now - record->seen < LW_GET(threshold) || record->function == 0)
            continue;
        uint64_t caller = i > 0 ? scan->records[i - 1].function : 0;
        struct lw_event event = {.first = record->function << 8 | LW_CALL | marks, .second = caller, .extra = record->seen, .time = now};
        lw_emit(thread, LW_CALLS, &event, now);
    }
    if (kept < scan->count)
        scan->count = kept;
}

/* Reads the new slots. Returns the number of records that are still valid; -1 if the thread moved
 * on meanwhile. */
static int64_t read_slots(struct lw_scan *scan, const struct lw_shadow *shadow, uint64_t depth, uint64_t generation, uint32_t *found) {
    uint32_t reachable = depth < LW_SHADOW_SLOTS ? (uint32_t)depth : LW_SHADOW_SLOTS;
    uint32_t kept = scan->count < reachable ? scan->count : reachable;
    /* From the top: below the first unchanged call, all calls are unchanged. */
    while (kept > 0 && LW_PEEK(scan->slots[kept - 1].generation) != scan->records[kept - 1].generation)
        kept--;
    for (uint32_t i = kept; i < reachable; i++) {
        const struct lw_slot *slot = &scan->slots[i];
        uint64_t which = LW_PEEK(slot->generation);
        scan->fresh[i].function = which > scan->floor ? LW_PEEK(slot->function) : 0;
        scan->fresh[i].generation = which;
    }
    *found = reachable;
    atomic_thread_fence(memory_order_acquire);
    return LW_PEEK(shadow->generation) == generation && LW_PEEK(shadow->depth) == depth ? (int64_t)kept : -1;
}

/* Only the scanner writes these counters, so no locked instruction is needed. */
static void count(_Atomic uint64_t *counter) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void scan_thread(struct lw_thread *thread, uint64_t now) {
    struct lw_scan *scan = thread->scan;
    struct lw_shadow *shadow = thread->shadow;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        uint64_t generation = LW_PEEK(shadow->generation);
        uint64_t depth = LW_PEEK(shadow->depth);
        atomic_thread_fence(memory_order_acquire);
        if (generation == scan->generation && depth == scan->depth) {
            count(&lw_scans_same); /* the same call is still running */
            return;
        }
        uint32_t found;
        int64_t kept = read_slots(scan, shadow, depth, generation, &found);
        count(kept < 0 ? &lw_scans_raced : &lw_scans_full);
        if (kept < 0)
            continue;
        now = lw_now();
        returned(thread, (uint32_t)kept, now, 0);
        for (uint32_t i = (uint32_t)kept; i < found; i++) {
            scan->records[i] = scan->fresh[i];
            scan->records[i].seen = now;
        }
        scan->count = found;
        scan->generation = generation;
        scan->depth = depth;
        return;
    }
}

static void each(void (*what)(struct lw_thread *, uint64_t), uint64_t now) {
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct lw_thread *thread = lw_thread_at(slot);
        if (atomic_load_explicit(&thread->life, memory_order_acquire) != LW_LIVE || !lw_try_lock(&thread->shadow_lock))
            continue;
        if (thread->shadow)
            what(thread, now);
        lw_unlock(&thread->shadow_lock);
    }
}

void lw_scan_all(uint64_t now) {
    /* Mean pause between scans, which the trace reports as its resolution. */
    static uint64_t last;
    uint64_t mean = atomic_load_explicit(&lw_scan_mean, memory_order_relaxed);
    uint64_t pause = now - last;
    if (last != 0 && pause < 1000000)
        atomic_store_explicit(&lw_scan_mean, mean == 0 ? pause << 8 : mean - (mean >> 8) + pause, memory_order_relaxed);
    last = now;
    each(scan_thread, now);
}

static void cut(struct lw_thread *thread, uint64_t now) { returned(thread, 0, now, LW_MARK_CUT); }

void lw_scan_finish(uint64_t now) { each(cut, now); }

void lw_scan_forget(struct lw_thread *thread, uint64_t now) {
    if (thread->scan) {
        returned(thread, 0, now, 0);
        thread->scan->depth = UINT64_MAX;
    }
}
