/* The clock's pace: how its thread waits, and the share of the program's CPU time that recording keeps to. */
#pragma once

#include "rt.h"

#pragma GCC visibility push(hidden)

/* ---- how the clock's thread waits (pace.c) --------------------------------------------------------------------------- */

/* The clock stood still: nothing that lasted no longer than this is known of the time. */
struct lw_still {
    uint64_t start, length;
    uint64_t used; /* CPU time that the program's threads used meanwhile */
};
/* What became of the clock since recording began; read by the control thread. */
struct lw_pace {
    _Atomic uint64_t stills, stood, worst; /* how often it stood still, how long in all and at most */
    _Atomic uint64_t coarse;               /* time in which it ticked no more often than every `coarse_tick` */
    _Atomic uint64_t coarse_tick;
    _Atomic uint64_t used;  /* CPU time of the program's threads */
    _Atomic uint64_t tick;  /* between two ticks, on average where it follows from `overhead` */
    _Atomic uint64_t ticks; /* how many */
    _Atomic bool real_time; /* it sleeps with priority over other programs */
};
extern struct lw_pace lw_pace;

/* Forgets an earlier session, or that of a forked program's parent: by the control thread, before there is a ticking thread. The ticking
 * thread would clear what the control thread takes from. */
void lw_pace_clear(void);
/* Before the first tick; by the ticking thread, as the rest of these. */
void lw_pace_begin(uint64_t now);
/* Between two ticks now, in nanoseconds. */
uint64_t lw_pace_tick(void);
/* The clock went on from `before` to `now`. */
void lw_pace_ticked(uint64_t before, uint64_t now);
/* Lets time pass until the next tick, or a part of it. */
void lw_pace_wait(uint64_t next, uint64_t now);
void lw_pace_end(uint64_t now);
/* The next time the clock stood still that nobody has taken yet; by the control thread. */
bool lw_pace_take(struct lw_still *into);

/* Events that were taken from rings since recording began; the ticking thread's. */
extern uint64_t lw_events_taken;

/* ---- ticks within a share of CPU time (overhead.c) -------------------------------------------------------------------- */

/* By the ticking thread. */
void lw_overhead_begin(void);
uint64_t lw_overhead_tick(void);
/* Whether the tick was changed, after so many ticks and events. */
bool lw_overhead_look(uint64_t now, uint64_t ticks, uint64_t events);
/* How much of the share ticks and events may take from now on; by the control thread. */
void lw_overhead_leave(double share);
/* What one hand-over of a cache line costs here, in nanoseconds, and the share that ticks and events took lately; by any thread. */
uint64_t lw_overhead_handover(void);
double lw_overhead_share(void);

/* ---- functions within a share of CPU time (budget.c) -------------------------------------------------------------------- */

/* All by the control thread. Whether an earlier recording has found that the share has no room for scheduler events: */
bool lw_budget_leaves_sched_out(void);
/* While something records, once the clock runs: */
void lw_budget_begin(void);
/* Counts calls now and then, and decides which functions are measured. */
void lw_budget_step(void);
void lw_budget_end(void);
/* What it came to, in a sentence. */
void lw_budget_words(char *text, size_t room);
/* Puts together the payload of a budget block; false if there is nothing to say. */
bool lw_budget_encode(struct lw_payload *p, uint64_t now);

#pragma GCC visibility pop
