/* Jumps at functions' entries, and the counters of each function that has one. */
#pragma once

#include "rt.h"

#pragma GCC visibility push(hidden)

/* ---- jumps (sleds.c) ------------------------------------------------------------------------- */

enum lw_sled_state {
    LW_SLEDS_OFF,          /* no function is measured */
    LW_SLEDS_ON,           /* all functions are measured */
    LW_SLEDS_CHOSEN,       /* functions whose site is `kept` are measured */
    LW_SLEDS_COUNT_TWINS,  /* all are measured, and all calls counted */
    LW_SLEDS_COUNT_BODIES, /* only `rare` ones are measured; all calls are counted */
};
/* Switches all modules to `state`.
 *
 * The control thread calls all functions of this section, except those for a fork. */
void lw_sleds_switch(enum lw_sled_state state);
/* Adds call counters to all loaded modules; false if a module could not get the memory. */
bool lw_sleds_add_sites(void);
/* Sleds since the last switch. */
struct lw_sleds_count {
    uint64_t all;
    uint64_t refused; /* the system refused to make their pages writable: `error` */
    uint64_t strange; /* unexpected bytes at their entry */
    int error;
};
struct lw_sleds_count lw_sleds_counts(void);
/* In a forked child that does not record: patched functions stay patched, and new libraries are not
 * patched. */
void lw_sleds_forget(void);
/* Before and after a fork. */
void lw_sleds_hold(void);
void lw_sleds_let_go(void);

/* ---- sites (sites.c) ------------------------------------------------------------------------- */

/* Site: one function that has a sled, with its counters. */
struct lw_site {
    uintptr_t entry;
    bool kept; /* measured while no calls are counted */
    bool rare; /* called so seldom that it is always measured */
    bool left_out; /* was not measured at some time of the recording */
    uint64_t counted; /* value of its counter when last read */
    double counts;      /* calls since the rates were last computed */
    double rate;        /* calls per nanosecond of the program's CPU time */
    /* calls, and nanoseconds in recorded calls, of recent counts with all functions measured */
    double calls, time;
    double all, missed; /* estimates since recording began: calls, and calls not measured */
    /* nanoseconds in recorded calls since last read; the clock thread adds to it */
    _Atomic uint64_t seen;
};
/* All sites of one module. */
struct lw_sites {
    struct lw_sites *next;
    size_t count, bytes;
    struct lw_site *sites;
    volatile uint64_t *counters;
    uint8_t *stubs;
    _Atomic bool gone;
};

/* Creates the sites for a module's sleds; NULL if no memory is in reach of its code. */
struct lw_sites *lw_sites_make(const struct lw_sleds *sleds);
/* Marks the sites of a module that is being unloaded. */
void lw_sites_forget(struct lw_sites *sites);
/* First element of the list of all modules' sites. */
struct lw_sites *lw_sites_first(void);
/* Code that counts a call, then jumps to the function's instrumented copy (`twin`) or to its own
 * body. */
const uint8_t *lw_sites_stub(const struct lw_sites *sites, size_t which, bool twin);
bool lw_sites_is_stub(const struct lw_sites *sites, const uint8_t *address);
static inline const struct lw_site *lw_sites_at(const struct lw_sites *sites, size_t which) { return &sites->sites[which]; }
/* Starts or stops adding the durations of calls to their functions' sites, by the time at which a
 * call ends. Called by the control thread. */
void lw_sites_watch(uint64_t from);
void lw_sites_watch_no_more(uint64_t until);
/* Before and after a fork. */
void lw_sites_hold(void);
void lw_sites_let_go(void);
/* Adds a recorded call to its site. Called by the clock thread. */
void lw_sites_saw(const struct lw_event *event);

#pragma GCC visibility pop
