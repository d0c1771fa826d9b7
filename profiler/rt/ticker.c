/* Clock thread: makes the clock tick.
 *
 * Between two ticks it moves events from the threads' rings into blocks, a few at a time, so that
 * no tick is late. With the `scan` engine it also reads the shadow stacks. It never writes to the
 * disk. */
#include "pace.h"
#include "sleds.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

/* Reading a ring takes cache lines from its thread, which needs them for its next event. So the
 * clock thread reads rings seldom, and then all events in them. A ring of 8,192 entries lasts for 8
 * ms at a million events per second. */
#define SWEEP_PAUSE 200000u
/* Events moved between two readings of the clock: about a quarter of a microsecond. */
#define AT_ONCE 4
/* A block that is not empty is handed in after this time. */
#define BLOCK_AGE 100000000u

_Alignas(128) LW_EXPORT struct lw_clock lw_clock = {.threshold = UINT64_MAX, .lock_threshold = UINT64_MAX};

_Atomic uint64_t lw_lost_total;
_Atomic bool lw_ticker_unpinned;
uint64_t lw_events_taken;
_Atomic bool lw_recording;

static _Atomic bool stop, running;
static enum lw_engine engine;

/* ---- the slow path of instrumented functions ------------------------------------------------- */

/* Records the thread's first event, and calls that began before the clock did or while it slept. A
 * separate function, so that `record` calls nothing else and saves few registers. */
LW_PRESERVE static __attribute__((noinline)) void seldom(uint64_t start, uint64_t end, const void *function, const void *caller) {
    struct lw_thread *self = lw_thread_self();
    if (!self)
        return;
    unsigned kind = LW_CALL;
    atomic_thread_fence(memory_order_acquire);
    if (start == LW_GET(slept)) {
        start = LW_GET(woke);
        if (end < start || end - start < LW_GET(threshold))
            return;
    } else if (start < LW_GET(began)) {
        start = LW_GET(began);
        kind |= LW_MARK_EARLY;
    }
    lw_push(self, LW_CALLS, lw_pack(function, kind), (uint64_t)(uintptr_t)caller, start, end);
}

/* Whether a call is too short to be recorded although a coarse tick fell into it and makes it look
 * as long as that tick. As far as is known, the call lasted from the tick until now. */
LW_PRESERVE static __attribute__((noinline)) bool is_short(uint64_t end) { return lw_now() - end < lw_config.threshold; }

LW_PRESERVE static __attribute__((noinline)) void record(uint64_t start, uint64_t end, const void *function, const void *caller) {
    struct lw_thread *self = lw_self;
    if (LW_UNLIKELY(LW_GET(coarse)) && start == LW_GET(previous) && is_short(end))
        return;
    if (LW_UNLIKELY((uintptr_t)self <= (uintptr_t)LW_NOBODY || start == LW_GET(slept) || start < LW_GET(began)))
        return seldom(start, end, function, caller);
    lw_push(self, LW_CALLS, lw_pack(function, LW_CALL), (uint64_t)(uintptr_t)caller, start, end);
}

/* Most calls into which a tick falls are short: for these, no register is saved. */
LW_EXPORT LW_PRESERVE void __leeward_tick_slow(uint64_t start, uint64_t end, const void *function, const void *caller) {
    if (end - start >= LW_GET(threshold))
        record(start, end, function, caller);
}

/* ---- emptying the rings ---------------------------------------------------------------------- */

static void hand_in(struct lw_thread *thread) {
    struct lw_block *block = thread->block;
    thread->block = NULL;
    lw_block_close(block);
    lw_block_hand_in(block);
}

static struct lw_block *block_of(struct lw_thread *thread, uint64_t now) {
    if (!thread->block && (thread->block = lw_block_take())) {
        lw_block_open(thread->block, thread->number, now);
        thread->block->thread = thread;
    }
    return thread->block;
}

void lw_emit(struct lw_thread *thread, enum lw_topic topic, const struct lw_event *event, uint64_t now) {
    struct lw_block *block = block_of(thread, now);
    if (!block) {
        atomic_fetch_add_explicit(&thread->lost[topic], 1, memory_order_relaxed);
        return;
    }
    lw_block_append(block, event);
    if (lw_block_is_full(block))
        hand_in(thread);
}

/* Writes how many events were lost since this was last written. */
static void tell_lost(struct lw_thread *thread, uint64_t now) {
    for (int topic = 0; topic < LW_TOPICS; topic++) {
        uint64_t lost = atomic_load_explicit(&thread->lost[topic], memory_order_relaxed);
        struct lw_block *block;
        if (lost == thread->lost_told[topic] || !(block = block_of(thread, now)))
            continue;
        struct lw_event event = {.first = LW_LOST, .second = (uint64_t)topic, .extra = lost - thread->lost_told[topic], .time = now};
        lw_block_append(block, &event);
        atomic_fetch_add_explicit(&lw_lost_total, lost - thread->lost_told[topic], memory_order_relaxed);
        thread->lost_told[topic] = lost;
        if (lw_block_is_full(block))
            hand_in(thread);
    }
}

/* Hands in the last block of a thread that has ended and whose ring is empty. False if no block was
 * free. */
static bool bury(struct lw_thread *thread, uint64_t now) {
    lw_scan_forget(thread, now);
    tell_lost(thread, now);
    struct lw_block *block = block_of(thread, now);
    if (!block)
        return false;
    block->last = true;
    atomic_store_explicit(&thread->life, LW_DRAINED, memory_order_relaxed);
    hand_in(thread);
    return true;
}

/* Position of the sweep over all threads' rings. */
struct sweep {
    uint32_t slot;
    bool under_way;
    /* Whether `head` has been read: a sweep reads it once per thread, and empties the ring up to
     * there. */
    bool looked;
    uint64_t head;
    int life;
    uint64_t next;
};

static bool next_thread(struct sweep *sweep) {
    sweep->slot++;
    sweep->looked = false;
    return true;
}

/* Moves at most AT_ONCE events into a block. Returns whether more is to be done in this sweep. */
static bool sweep_step(struct sweep *sweep, uint64_t now) {
    if (!sweep->under_way) {
        if (now < sweep->next)
            return false;
        sweep->under_way = true;
        sweep->slot = 0;
    }
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
    if (sweep->slot >= slots) {
        sweep->under_way = false;
        sweep->next = now + SWEEP_PAUSE;
        return false;
    }
    struct lw_thread *thread = lw_thread_at(sweep->slot);
    if (!sweep->looked) {
        /* Read `life` before `head`: a thread that has exited adds no event. */
        sweep->life = atomic_load_explicit(&thread->life, memory_order_acquire);
        if (sweep->life == LW_FREE || sweep->life == LW_DRAINED)
            return next_thread(sweep);
        sweep->head = atomic_load_explicit(&thread->head, memory_order_acquire);
        sweep->looked = true;
    }
    uint64_t before = atomic_load_explicit(&thread->tail, memory_order_relaxed), tail = before;
    for (int n = 0; tail != sweep->head && n < AT_ONCE; n++, tail++) {
        struct lw_block *block = block_of(thread, now);
        if (!block)
            break; /* the disk is slow: events stay in the ring */
        const struct lw_event *event = lw_ring_entry(thread, tail);
        lw_block_append(block, event);
        lw_sites_saw(event);
        if (lw_block_is_full(block))
            hand_in(thread);
    }
    lw_events_taken += tail - before;
    if (tail != before)
        atomic_store_explicit(&thread->tail, tail, memory_order_release);
    if (tail != sweep->head)
        return tail != before || next_thread(sweep);
    tell_lost(thread, now);
    if (sweep->life == LW_EXITED)
        bury(thread, now);
    else if (thread->block && now - thread->block->opened > BLOCK_AGE)
        hand_in(thread);
    return next_thread(sweep);
}

/* ---- ticks and the end ----------------------------------------------------------------------- */

static void publish(uint64_t now, uint64_t before) {
    if (LW_GET(coarse))
        LW_SET(previous, before);
    LW_SET(now, now);
    lw_pace_ticked(before, now);
}

/* Moves all events out of the rings, as far as blocks become free within a second. */
static void finish(void) {
    uint64_t deadline = lw_now() + 1000000000u;
    lw_scan_finish(lw_now());
    for (int quiet = 0; quiet < 2 && lw_now() < deadline;) {
        struct sweep sweep = {0};
        bool left = false;
        while (sweep_step(&sweep, lw_now()))
            ;
        uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
        for (uint32_t slot = 0; slot < slots; slot++) {
            struct lw_thread *thread = lw_thread_at(slot);
            int life = atomic_load_explicit(&thread->life, memory_order_acquire);
            if (life == LW_FREE || life == LW_DRAINED)
                continue;
            if (atomic_load(&thread->head) != atomic_load(&thread->tail))
                left = true;
            else if (thread->block)
                hand_in(thread);
        }
        quiet = left ? 0 : quiet + 1;
        if (left)
            lw_sleep(100000);
    }
}

/* ---- idle programs --------------------------------------------------------------------------- */

/* Interval of the checks whether any thread of the program runs. */
#define IDLE_LOOK 100000000u
/* Length of one sleep of the clock thread while the program is idle. */
#define IDLE_NAP 1000000u
/* CPU time that counts as activity: more than the readings' error, which is up to 2 us, and less
 * than a thread uses to wake up and to wait again, which is 12 us or more. */
#define IDLE_NOISE 4000u

static uint64_t cpu_time(clockid_t which) {
    struct timespec t;
    return clock_gettime(which, &t) == 0 ? (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec : 0;
}

static clockid_t own_clock;

uint64_t lw_program_time(void) {
    uint64_t all = cpu_time(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t ours = cpu_time(own_clock) + cpu_time(lw_control_clock());
    return all > ours ? all - ours : 0;
}

struct idle {
    uint64_t look, used, since;
};

/* Whether the program has been idle for so long that the clock thread may sleep. */
static bool is_idle(struct idle *idle, uint64_t now) {
    if (lw_config.idle == 0 || now < idle->look)
        return false;
    idle->look = now + IDLE_LOOK;
    uint64_t used = lw_program_time();
    if (used > idle->used + IDLE_NOISE || idle->since == 0) {
        idle->used = used;
        idle->since = now;
    }
    return now - idle->since >= lw_config.idle;
}

/* Sleeps until the program runs again. A function that is entered meanwhile reads an old time,
 * which the slow path corrects. */
static void sleep_while_idle(struct idle *idle, struct sweep *sweep) {
    LW_SET(slept, LW_GET(now));
    while (!atomic_load_explicit(&stop, memory_order_relaxed) && lw_program_time() <= idle->used + IDLE_NOISE) {
        lw_sleep(IDLE_NAP);
        while (sweep_step(sweep, lw_now()))
            ;
    }
    LW_SET(woke, lw_now());
    LW_SET(now, LW_GET(woke));
    idle->since = 0;
    idle->look = 0;
}

/* ---- the clock ------------------------------------------------------------------------------- */

static void *ticker(void *unused) {
    (void)unused;
    if (pthread_getcpuclockid(pthread_self(), &own_clock) != 0)
        own_clock = CLOCK_THREAD_CPUTIME_ID;
    /* Only the clock thread goes to this CPU. If the thread that writes shared it, the clock would
     * stall for 80 us at a time, and calls that run then would look that long. */
    if (lw_config.cpu >= 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((unsigned)lw_config.cpu, &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
            atomic_store(&lw_ticker_unpinned, true);
    }
    prctl(PR_SET_TIMERSLACK, 1);
    uint64_t tick = lw_config.tick;
    bool scans = engine == LW_ENGINE_SCAN;
    struct sweep sweep = {0};
    struct idle idle = {0};
    lw_events_taken = 0;
    lw_pace_begin(lw_now());
    uint64_t last = lw_now(), next = last;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t now = lw_now();
        if (now >= next) {
            publish(now, last);
            last = now;
            if (scans)
                lw_scan_all(now);
            if (is_idle(&idle, now)) {
                sleep_while_idle(&idle, &sweep);
                last = next = LW_GET(now);
            }
            next += lw_pace_tick();
            if (next < now)
                next = now + lw_pace_tick();
            if (tick == 0)
                sweep_step(&sweep, now);
        } else if (!sweep_step(&sweep, now)) {
            lw_pace_wait(next, now);
        }
    }
    lw_pace_end(lw_now());
    finish();
    atomic_store(&running, false);
    return NULL;
}

bool lw_ticker_start(enum lw_engine which) {
    engine = which;
    atomic_store(&stop, false);
    uint64_t now = lw_now();
    /* Only the clock thread goes to this CPU. If the control thread shared it, the clock would
     * stall for 80 us at a time. Calls that run then would look that long. */
    uint64_t slack = lw_config.tick / 2;
    LW_SET(began, now);
    LW_SET(slept, UINT64_MAX);
    LW_SET(now, now);
    LW_SET(threshold, lw_config.threshold > slack ? lw_config.threshold - slack : 0);
    LW_SET(lock_threshold, lw_config.lock_threshold);
    LW_SET(hold_threshold, lw_config.lock_threshold > 0 ? lw_config.lock_threshold + slack : 0);
    LW_SET(hold_least, lw_config.lock_threshold > 0 ? 1 : 0);
    atomic_store(&running, true);
    atomic_store(&lw_recording, true);
    if (lw_helper_create("leeward-clock", ticker))
        return true;
    atomic_store(&running, false);
    atomic_store(&lw_recording, false);
    return false;
}

void lw_ticker_stop(void) {
    atomic_store(&lw_recording, false);
    atomic_store(&stop, true);
    /* The clock thread needs free blocks to finish, and this thread gives them back. */
    while (atomic_load(&running)) {
        lw_writer_step();
        lw_sleep(200000);
    }
    lw_writer_step();
}
