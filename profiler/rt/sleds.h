/* Jumps at functions' entries, and the figures of each function that has one. */
#pragma once

#include "rt.h"

#pragma GCC visibility push(hidden)

/* ---- jumps (sleds.c) ------------------------------------------------------------------------------------------------------ */

enum lw_sled_state {
    LW_SLEDS_OFF,          /* functions are as without us */
    LW_SLEDS_ON,           /* all are measured */
    LW_SLEDS_CHOSEN,       /* those are measured whose sites say so */
    LW_SLEDS_COUNT_TWINS,  /* all are measured, and their calls counted */
    LW_SLEDS_COUNT_BODIES, /* only rare ones are measured, but all calls are counted */
};
/* By the control thread, as all of these but those around a fork. */
void lw_sleds_switch(enum lw_sled_state state);
/* Lets calls be counted of all modules that are there; false if some can't have what it takes. */
bool lw_sleds_add_sites(void);
/* What became of the sleds since they were last switched. */
struct lw_sleds_count {
    uint64_t all;
    uint64_t refused; /* the system did not let their pages be written, because of `error` */
    uint64_t strange; /* something else is at their entry */
    int error;
};
struct lw_sleds_count lw_sleds_counts(void);
/* In a forked child that does not record: its functions stay as they are, and libraries that come are left alone. */
void lw_sleds_forget(void);
/* Around a fork. */
void lw_sleds_hold(void);
void lw_sleds_let_go(void);

/* ---- sites (sites.c) -------------------------------------------------------------------------------------------------------- */

/* A function that has a sled, and what was counted of it. */
struct lw_site {
    uintptr_t entry;
    bool kept; /* is measured while nothing is counted */
    bool rare; /* is called so seldom that it is always measured */
    bool left_out; /* was not measured at some time */
    uint64_t counted; /* its counter when it was last looked at */
    double counts;      /* calls since rates were last found */
    double rate;        /* calls per nanosecond of the program's CPU time */
    double calls, time; /* in counts of late while all was measured: how many, and the nanoseconds within those that were recorded */
    double all, missed; /* calls since recording began, and how many of them were not measured: estimates */
    _Atomic uint64_t seen; /* nanoseconds in recorded calls since that was last taken; the ticking thread adds to it */
};
/* All functions of a module. */
struct lw_sites {
    struct lw_sites *next;
    size_t count, bytes;
    struct lw_site *sites;
    volatile uint64_t *counters;
    uint8_t *stubs;
    _Atomic bool gone;
};

/* For a module's sleds; NULL if there is no memory in reach of its code. */
struct lw_sites *lw_sites_make(const struct lw_sleds *sleds);
/* The module goes. */
void lw_sites_forget(struct lw_sites *sites);
/* The first of all modules'. */
struct lw_sites *lw_sites_first(void);
/* Code that counts a call and goes on in the function's twin or in its own body. */
const uint8_t *lw_sites_stub(const struct lw_sites *sites, size_t which, bool twin);
bool lw_sites_is_stub(const struct lw_sites *sites, const uint8_t *address);
static inline const struct lw_site *lw_sites_at(const struct lw_sites *sites, size_t which) { return &sites->sites[which]; }
/* Adds the time of calls that end from now on to their functions' sites, or stops. By the control thread. */
void lw_sites_watch(uint64_t from);
void lw_sites_watch_no_more(uint64_t until);
/* Around a fork. */
void lw_sites_hold(void);
void lw_sites_let_go(void);
/* A call was recorded; by the ticking thread. */
void lw_sites_saw(const struct lw_event *event);

#pragma GCC visibility pop
