/* Pace of the clock: how the clock thread waits, and the share of the program's CPU time that
 * recording may take. */
#pragma once

#include "rt.h"

#pragma GCC visibility push(hidden)

/* ---- how the clock thread waits (pace.c) ----------------------------------------------------- */

/* One stall of the clock. Calls that began and ended within it are not recorded. */
struct lw_still {
    uint64_t start, length;
    uint64_t used; /* CPU time of the program's threads in it */
};
/* Counters of the clock since recording began, read by the control thread. */
struct lw_pace {
    _Atomic uint64_t stills, stood, worst; /* stalls: number, sum, longest */
    /* time in which ticks were at least `coarse_tick` apart */
    _Atomic uint64_t coarse;
    _Atomic uint64_t coarse_tick;
    _Atomic uint64_t used;  /* CPU time of the program's threads */
    _Atomic uint64_t tick;  /* between two ticks; the average if it follows from `overhead` */
    _Atomic uint64_t ticks; /* number of ticks */
    _Atomic bool real_time; /* the thread sleeps with real-time priority */
};
extern struct lw_pace lw_pace;

/* Clears the counters of an earlier session, or of a forked child's parent. Called by the control
 * thread before the clock thread exists: later, the clock thread would clear a queue from which the
 * control thread takes. */
void lw_pace_clear(void);
/* Prepares the first tick. The clock thread calls this and the functions below, except
 * `lw_pace_take`. */
void lw_pace_begin(uint64_t now);
/* Current time between two ticks, in nanoseconds. */
uint64_t lw_pace_tick(void);
/* The clock advanced from `before` to `now`. */
void lw_pace_ticked(uint64_t before, uint64_t now);
/* Waits until the next tick, or for a part of that time. */
void lw_pace_wait(uint64_t next, uint64_t now);
void lw_pace_end(uint64_t now);
/* Takes the oldest stall that has not been taken yet. Called by the control thread. */
bool lw_pace_take(struct lw_still *into);

/* Events taken from rings since recording began. Belongs to the clock thread. */
extern uint64_t lw_events_taken;

/* ---- ticks within a share of CPU time (overhead.c) ------------------------------------------- */

/* Called by the clock thread. */
void lw_overhead_begin(void);
uint64_t lw_overhead_tick(void);
/* Adjusts the tick, given the numbers of ticks and events so far. Returns whether the tick
 * changed. */
bool lw_overhead_look(uint64_t now, uint64_t ticks, uint64_t events);
/* Sets the share that ticks and events may take from now on. Called by the control thread. */
void lw_overhead_leave(double share);
/* Time to hand over one cache line on this machine, in nanoseconds; share that ticks and events
 * took lately. For any thread. */
uint64_t lw_overhead_handover(void);
double lw_overhead_share(void);

/* ---- functions within a share of CPU time (budget.c) ----------------------------------------- */

/* Whether an earlier recording found that scheduler events cost more than the share allows.
 *
 * The control thread calls this and all functions below. */
bool lw_budget_leaves_sched_out(void);
/* Starts the budget of a recording, after the clock has started. */
void lw_budget_begin(void);
/* Counts calls from time to time, and chooses the functions to measure. */
void lw_budget_step(void);
void lw_budget_end(void);
/* Writes a one-sentence summary of the budget; false if the recording has none. */
bool lw_budget_words(char *text, size_t room);
/* Encodes the payload of a budget block; false if there is nothing to write. */
bool lw_budget_encode(struct lw_payload *p, uint64_t now);

#pragma GCC visibility pop
