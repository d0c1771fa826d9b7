/* Chooses the tick so that ticks and events take their share of the program's CPU time
 * (`overhead=`, less budget.c's share for calls).
 *
 * A tick costs each running thread one hand-over of the clock's cache line. An event costs its
 * writing, and the hand-over of its place in the ring. The clock thread measures the cost of a
 * hand-over when recording begins. It counts ticks and events during the recording, and adjusts the
 * tick. */
#include "pace.h"

/* Limits of the cost of a hand-over, in nanoseconds. Measured values outside are noise. */
#define LEAST 50u
#define MOST 800u
/* Cost if it could not be measured, such as between two virtual CPUs of a large machine. */
#define USUAL 200u
/* Part of a hand-over that costs the program time. A core executes what follows a load while it
 * waits for the line; the probe has nothing else to execute. Lua pays 33 ns for a tick and its
 * event where the probe finds 200; this counts 75. */
#define SHOWN 8u
/* Cost of writing an event, without the hand-over of its place. */
#define WRITING 25u
#define TICK_LEAST 1000u
#define TICK_MOST 1000000u
#define LOOK_PAUSE 50000000u

#define ROUNDS 7
#define READS 400000u
#define WRITE_PAUSE 2000u
#define PATIENCE 60000000u

static _Alignas(128) _Atomic uint64_t line;
static _Alignas(128) _Atomic bool writing;
static _Atomic bool measured, given_up;
static _Atomic uint64_t measured_cost;

/* Whether `handover` was measured. A probe that gave up is repeated by the next recording. */
static bool known;
static uint64_t handover = USUAL, tick = TICK_LEAST;
static uint64_t look_at, seen_used, seen_events, seen_ticks;
static uint64_t began;
/* In millionths of the program's CPU time: the allowed share, and the share of the last
 * interval. */
static _Atomic uint64_t allowed, taken;

#define MILLION 1e6

static uint64_t time_of_reads(void) {
    uint64_t before = lw_now();
    for (unsigned n = 0; n < READS; n++)
        (void)*(volatile uint64_t *)&line;
    return lw_now() - before;
}

/* Reads a line that no thread writes, then the same line while the clock thread writes it.
 *
 * The result is the least of several rounds, because either thread may be interrupted. */
static void *reads(void *unused) {
    (void)unused;
    uint64_t quiet = UINT64_MAX, least = UINT64_MAX;
    for (int round = 0; round < ROUNDS && !atomic_load(&given_up); round++) {
        uint64_t time = time_of_reads();
        quiet = time < quiet ? time : quiet;
        atomic_store(&writing, true);
        uint64_t before = atomic_load(&line);
        time = time_of_reads();
        uint64_t writes = atomic_load(&line) - before;
        atomic_store(&writing, false);
        if (writes >= 20 && time > quiet && (time - quiet) / writes < least)
            least = (time - quiet) / writes;
    }
    atomic_store(&measured_cost, least);
    atomic_store(&measured, true);
    return NULL;
}

static void measure(void) {
    atomic_store(&measured, false);
    atomic_store(&given_up, false);
    handover = USUAL;
    if (!lw_helper_create("leeward-probe", reads))
        return;
    uint64_t deadline = lw_now() + PATIENCE, next = 0;
    while (!atomic_load(&measured)) {
        uint64_t now = lw_now();
        if (now > deadline) {
            atomic_store(&given_up, true);
            return;
        }
        if (atomic_load_explicit(&writing, memory_order_relaxed) && now >= next) {
            atomic_fetch_add_explicit(&line, 1, memory_order_relaxed);
            next = now + WRITE_PAUSE;
        }
        lw_relax();
    }
    known = true;
    uint64_t cost = atomic_load(&measured_cost);
    if (cost != UINT64_MAX)
        handover = cost < LEAST ? LEAST : cost > MOST ? MOST : cost;
}

static double shown(void) { return (double)handover / SHOWN; }

uint64_t lw_overhead_tick(void) { return tick; }

void lw_overhead_begin(void) {
    /* Measure once, and only if the tick follows from it: measuring takes time. */
    if (lw_config.tick_follows && !known)
        measure();
    look_at = seen_used = seen_events = seen_ticks = 0;
    atomic_store(&taken, 0);
    lw_overhead_leave(lw_config.overhead);
    began = lw_now();
    /* Initial guess: one thread writes an event at every second tick. */
    double each = shown() + (WRITING + shown()) / 2;
    tick = (uint64_t)(each / lw_config.overhead);
    tick = tick < TICK_LEAST ? TICK_LEAST : tick > TICK_MOST ? TICK_MOST : tick;
}

bool lw_overhead_look(uint64_t now, uint64_t ticks, uint64_t events) {
    if (look_at == 0)
        look_at = began;
    if (now < look_at + LOOK_PAUSE)
        return false;
    uint64_t used = lw_program_time(), span = now - look_at;
    double more = used > seen_used ? (double)(used - seen_used) : 0;
    bool first = seen_used == 0;
    double threads = more / (double)span;
    double cost = (double)(ticks - seen_ticks) * threads * shown() + (double)(events - seen_events) * (WRITING + shown());
    look_at = now;
    seen_used = used;
    seen_ticks = ticks;
    seen_events = events;
    /* An idle program has no CPU time to share. */
    if (first || more < 1000000)
        return false;
    atomic_store(&taken, (uint64_t)(cost / more * MILLION));
    if (!lw_config.tick_follows)
        return false;
    double change = cost / more * MILLION / (double)atomic_load(&allowed);
    double to = (double)tick * (change < 0.5 ? 0.5 : change > 2 ? 2 : change);
    tick = to < TICK_LEAST ? TICK_LEAST : to > TICK_MOST ? TICK_MOST : (uint64_t)to;
    return true;
}

void lw_overhead_leave(double share) { atomic_store(&allowed, (uint64_t)(share * MILLION) + 1); }

uint64_t lw_overhead_handover(void) { return handover; }

double lw_overhead_share(void) { return (double)atomic_load(&taken) / MILLION; }
