/* Chooses the functions that are measured, so that recording keeps to a share of the program's CPU
 * time (`overhead=`).
 *
 * The tick does not change the cost of a measured call. So a program of many short calls can be
 * recorded cheaply only if some of its functions are not measured.
 *
 * From time to time the control thread counts all calls for two milliseconds. Half of that time all
 * functions are measured, the other half most are not. The difference in CPU time per call is the
 * cost of measuring one call, in this program on this machine. Then the control thread chooses
 * functions until the share is spent, those with long calls first. The rest, with short and
 * frequent calls, is not measured until the next count. The trace reports what was left out. */
#include "pace.h"
#include "sleds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* One count has TURNS turns of TURN nanoseconds. */
#define TURNS 4
#define TURN 500000u
/* Program CPU time that one result needs, in nanoseconds. A program that does little needs several
 * counts for it. After a result, PAUSE_TIMES as much CPU time passes until the next count; for the
 * first LEARN_FIRST results, PAUSE_TIMES_FIRST as much. */
#define LEARN_FROM 1000000u
#define PAUSE_TIMES 100
#define LEARN_FIRST 8
#define PAUSE_TIMES_FIRST 40
/* Cost of measuring one call, in nanoseconds. Values below CALL_LEAST or above CALL_MOST are noise.
 * CALL_USUAL is the usual cost; USUAL_SPREAD is its variance between programs. */
#define CALL_LEAST 1.0
#define CALL_MOST 8.0
#define CALL_USUAL 1.5
#define USUAL_SPREAD 0.5
/* Number of latest samples of the cost; their median counts. */
#define SAMPLES 15
/* Cost of counting one call in its stub, in nanoseconds. */
#define COUNTING 1.5
/* Cost of acquiring and releasing a lock, in nanoseconds: with holds recorded, and with only waits
 * recorded. */
#define LOCK_PAIR 6.0
#define LOCK_WAITS 2.0
/* Part of the share that calls may take. Ticks and events get the rest, and also the part that
 * calls leave. While the clock is coarse, ticks and events need less. */
#define FOR_CALLS 0.45
#define FOR_CALLS_COARSE 0.6
/* Part of the calls' share that goes first to the functions with the fewest calls, long or
 * short. */
#define FOR_RARE 0.2
/* Part of the share above which holders of locks or scheduler events are left out, and above which
 * waits for locks are. */
#define FOR_OTHERS 0.4
#define FOR_WAITS 0.6
/* Results needed before locks or scheduler events are left out; program CPU time needed to weigh
 * scheduler events. */
#define OTHERS_FROM 4
#define OTHERS_TIME 50000000u
/* Before the first result, a function is `rare` if measuring it costs less than this share of the
 * program's CPU time. */
#define SELDOM 0.0005
/* Weight that earlier counts keep with each result. */
#define FADING 0.7
/* Duration in nanoseconds of one call that is added to each function's recorded calls. It decides
 * for a function without any. */
#define UNSEEN 1000.0
/* Most functions that a budget block lists. */
#define NAMED 64

/* Which functions are measured: all (MEASURED), only rare ones (BARE), or the chosen ones
 * (CHOSEN). */
static enum { OFF, MEASURED, BARE, CHOSEN } phase;

/* Counted since the last result: the program's CPU time, calls of its functions, and locks. */
static struct tally {
    double used, calls, locks;
} measured, bare;

static double samples[SAMPLES];
static unsigned sample_count, learnt;
static double call_cost = CALL_USUAL;
/* Calls of all functions per nanosecond of the program's CPU time. */
static double all_rate;
/* Program CPU time at which the next count is due, at which calls were last accounted for, and at
 * which switches were last weighed. */
static uint64_t used_next, used_accounted, used_weighed, switches_then;
/* What is still recorded of locks, and locks acquired per nanosecond of the program's CPU time. */
static enum lw_locks locks;
static double lock_rate;
static bool sched_out, unreachable;
static double sched_share, calls_share;
/* Estimated cost while functions were chosen, in nanoseconds of the program's CPU time, and that
 * CPU time. */
static double cost_sum, cost_time;

_Atomic uint64_t lw_locks_counted;

/* CPU time used between two readings. A reading combines the clocks of several threads, so the time
 * may seem to go back: then 0. */
static double between(uint64_t before, uint64_t after) { return after > before ? (double)(after - before) : 0; }

static double others(void);

static double at_least(double value, double least) { return value > least ? value : least; }

/* ---- functions ------------------------------------------------------------------------------- */

static void each_site(void (*what)(struct lw_site *, double), double argument) {
    for (struct lw_sites *each = lw_sites_first(); each; each = each->next)
        for (size_t i = 0; i < each->count; i++)
            what(&each->sites[i], argument);
}

/* Adds the estimated calls of the last `used` nanoseconds of CPU time, and counts them as missed if
 * the site was not measured. */
static void account_for(struct lw_site *site, double used) {
    double calls = site->rate * used;
    bool missed = (phase == CHOSEN && !site->kept) || (phase == BARE && !site->rare);
    site->all += calls;
    if (missed)
        site->missed += calls;
    site->left_out |= phase == CHOSEN && !site->kept && calls >= 1;
}

static void account(uint64_t used_now) {
    double used = between(used_accounted, used_now);
    used_accounted = used_now;
    each_site(account_for, used);
    if (phase == CHOSEN) {
        cost_sum += used * (calls_share + lw_overhead_share() + others());
        cost_time += used;
    }
}

/* Mean nanoseconds per call. */
static double length_of(const struct lw_site *site) { return (site->time + UNSEEN) / (site->calls + 1); }

static int by_rate(const void *a, const void *b) {
    const struct lw_site *one = *(struct lw_site *const *)a, *other = *(struct lw_site *const *)b;
    return (one->rate > other->rate) - (one->rate < other->rate);
}

static int by_length(const void *a, const void *b) {
    /* A measured function stays measured unless another is 1.2 times as long: each change leaves a
     * gap in the trace. */
    const struct lw_site *one = *(struct lw_site *const *)a, *other = *(struct lw_site *const *)b;
    double first = length_of(one) * (one->kept ? 1.2 : 1), second = length_of(other) * (other->kept ? 1.2 : 1);
    return (first < second) - (first > second);
}

/* Chooses the functions to measure within `share` of the program's CPU time. */
static void choose(double share) {
    size_t room = 1, called = 0;
    for (struct lw_sites *each = lw_sites_first(); each; each = each->next)
        room += each->count;
    struct lw_site **sites = mmap(NULL, room * sizeof *sites, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sites == MAP_FAILED)
        return;
    for (struct lw_sites *each = lw_sites_first(); each; each = each->next)
        for (size_t i = 0; i < each->count; i++) {
            each->sites[i].rare = each->sites[i].kept = true;
            if (each->sites[i].rate > 0)
                sites[called++] = &each->sites[i];
        }
    double taken = 0;
    size_t rare = 0;
    qsort(sites, called, sizeof *sites, by_rate);
    for (; rare < called && taken + sites[rare]->rate * call_cost <= share * FOR_RARE; rare++)
        taken += sites[rare]->rate * call_cost;
    qsort(sites + rare, called - rare, sizeof *sites, by_length);
    for (size_t i = rare; i < called; i++) {
        double cost = sites[i]->rate * call_cost;
        sites[i]->rare = false;
        sites[i]->kept = taken + cost <= share;
        taken += sites[i]->kept ? cost : 0;
    }
    calls_share = taken;
    munmap(sites, room * sizeof *sites);
}

/* ---- costs ----------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static double median_of(const double *values, unsigned count) {
    double sorted[SAMPLES];
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_numbers);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* Updates the estimated cost of a measured call.
 *
 * One sample says little, because the program's work changes from one count to the next. So the
 * estimate lies between the usual cost and the samples' median: the wider the samples spread, the
 * closer to the usual cost. */
static void learn_cost(void) {
    if (measured.calls < 1000 || bare.calls < 1000)
        return;
    /* Ticks and events are accounted for separately. */
    samples[sample_count++ % SAMPLES] = measured.used * (1 - lw_overhead_share()) / measured.calls - bare.used / bare.calls;
    unsigned known = sample_count < SAMPLES ? sample_count : SAMPLES;
    if (known < 4)
        return;
    double median = median_of(samples, known), off[SAMPLES];
    for (unsigned i = 0; i < known; i++)
        off[i] = samples[i] > median ? samples[i] - median : median - samples[i];
    /* 1.48: standard deviation of a normal distribution by its median deviation. 1.25: error of a
     * median by the error of a mean. */
    double deviation = median_of(off, known) * 1.48 * 1.25;
    double error = deviation * deviation / known;
    double cost = CALL_USUAL + (median - CALL_USUAL) * USUAL_SPREAD / (USUAL_SPREAD + error);
    call_cost = cost < CALL_LEAST ? CALL_LEAST : cost > CALL_MOST ? CALL_MOST : cost;
}

/* Stops recording locks or scheduler events that take too much; an earlier recording may have found
 * that. */
static void leave_others_out(void) {
    double most = FOR_OTHERS * lw_config.overhead;
    if (lw_config.locks && locks == LW_LOCKS_ALL && lock_rate * LOCK_PAIR > most) {
        locks = lock_rate * LOCK_WAITS > FOR_WAITS * lw_config.overhead ? LW_LOCKS_OFF : LW_LOCKS_WAITS;
        lw_locks_switch(locks);
    }
    if (!sched_out && sched_share > most) {
        lw_sched_mute();
        sched_out = true;
    }
}

/* Share that locks and scheduler events take as they are recorded now. */
static double others(void) {
    return lock_rate * (locks == LW_LOCKS_ALL ? LOCK_PAIR : locks == LW_LOCKS_WAITS ? LOCK_WAITS : 0) + (sched_out ? 0 : sched_share);
}

static void weigh_others(uint64_t used_now) {
    if (lw_config.locks && locks == LW_LOCKS_ALL) {
        double rate = (measured.locks + bare.locks) / (measured.used + bare.used);
        lock_rate = learnt == 0 ? rate : FADING * lock_rate + (1 - FADING) * rate;
    }
    double used = between(used_weighed, used_now);
    if (!sched_out && used >= OTHERS_TIME) {
        uint64_t switches = lw_sched_switches();
        sched_share = (double)(switches - switches_then) * (double)lw_sched_cost() / used;
        switches_then = switches;
        used_weighed = used_now;
    }
    if (learnt >= OTHERS_FROM)
        leave_others_out();
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Reads all counters. Returns the calls since the last reading. */
static double take_counters(void) {
    double sum = 0;
    for (struct lw_sites *each = lw_sites_first(); each; each = each->next)
        for (size_t i = 0; i < each->count; i++) {
            struct lw_site *site = &each->sites[i];
            uint64_t now = each->counters[i];
            double calls = (double)(now - site->counted);
            site->counted = now;
            site->counts += calls;
            site->calls += phase == MEASURED ? calls : 0;
            sum += calls;
        }
    return sum;
}

static void take_turn(bool all, struct tally *into) {
    phase = all ? MEASURED : BARE;
    lw_sleds_switch(all ? LW_SLEDS_COUNT_TWINS : LW_SLEDS_COUNT_BODIES);
    uint64_t from = lw_now(), used = lw_program_time(), locks = atomic_load(&lw_locks_counted);
    if (all)
        lw_sites_watch(from);
    lw_sleep(TURN);
    uint64_t used_now = lw_program_time();
    into->used += between(used, used_now);
    into->locks += (double)(atomic_load(&lw_locks_counted) - locks);
    into->calls += take_counters();
    if (all)
        lw_sites_watch_no_more(lw_now());
    account(used_now);
}

/* Before the first result: whether a function seems to be called so seldom that leaving it out
 * saves nothing. */
static void guess(struct lw_site *site, double used) { site->rare = site->calls * call_cost <= used * SELDOM; }

static void count_calls(void) {
    account(lw_program_time());
    unreachable |= !lw_sleds_add_sites();
    LW_SET(counting, 1);
    /* The order is all, bare, bare, all: a steady change of the load affects both kinds of turns
     * alike. */
    for (int turn = 0; turn < TURNS; turn++) {
        bool all = turn % 4 == 0 || turn % 4 == 3;
        take_turn(all, all ? &measured : &bare);
        if (learnt == 0 && turn == 0)
            each_site(guess, measured.used);
    }
    LW_SET(counting, 0);
}

static void fade(struct lw_site *site, double used) {
    /* A higher rate counts at once; a lower one counts gradually. */
    double rate = site->counts / used;
    site->rate = rate > site->rate ? rate : FADING * site->rate + (1 - FADING) * rate;
    site->counts = 0;
    site->time += (double)atomic_exchange_explicit(&site->seen, 0, memory_order_relaxed);
    site->calls *= FADING;
    site->time *= FADING;
}

static unsigned pause_times(void) { return learnt < LEARN_FIRST ? PAUSE_TIMES_FIRST : PAUSE_TIMES; }

/* Chooses functions and ticks by the current estimates. */
static void share_out(void) {
    double counting = all_rate * (COUNTING + call_cost / 2) / pause_times();
    /* With a configured tick, the cost of ticks and events can't be changed. */
    double fixed = lw_config.tick_follows ? 0 : lw_overhead_share();
    double rest = at_least(lw_config.overhead - others() - counting - fixed, lw_config.overhead / 4);
    choose(rest * (!lw_config.tick_follows ? 1 : LW_GET(coarse) ? FOR_CALLS_COARSE : FOR_CALLS));
    lw_overhead_leave(at_least(rest - calls_share, rest / 4));
}

static void learn(uint64_t used_now) {
    double used = measured.used + bare.used;
    all_rate = (measured.calls + bare.calls) / used;
    each_site(fade, used);
    learn_cost();
    weigh_others(used_now);
    share_out();
    measured = bare = (struct tally){0};
    learnt++;
}

/* ---- steps of a recording -------------------------------------------------------------------- */

/* Keeps the estimates of earlier recordings; clears the counts of this one. */
static void begin_site(struct lw_site *site, uint64_t counter) {
    site->kept = true;
    site->left_out = false;
    site->counted = counter;
    site->counts = site->all = site->missed = 0;
    atomic_store(&site->seen, 0);
}

bool lw_budget_leaves_sched_out(void) {
    return lw_config.overhead > 0 && learnt > 0 && sched_share > FOR_OTHERS * lw_config.overhead;
}

void lw_budget_begin(void) {
    phase = OFF;
    measured = bare = (struct tally){0};
    used_next = used_accounted = used_weighed = lw_program_time();
    switches_then = lw_sched_switches();
    locks = LW_LOCKS_ALL;
    sched_out = lw_budget_leaves_sched_out();
    unreachable = false;
    calls_share = cost_sum = cost_time = 0;
    if (lw_config.overhead <= 0 || lw_engine != LW_ENGINE_TICK)
        return;
    unreachable = !lw_sleds_add_sites();
    for (struct lw_sites *each = lw_sites_first(); each; each = each->next)
        for (size_t i = 0; i < each->count; i++)
            begin_site(&each->sites[i], each->counters[i]);
    phase = MEASURED;
    used_next += LEARN_FROM / 2;
    /* An earlier recording has produced estimates. */
    if (learnt > 0) {
        leave_others_out();
        share_out();
        lw_sleds_switch(LW_SLEDS_CHOSEN);
        phase = CHOSEN;
    }
}

void lw_budget_step(void) {
    uint64_t before = phase == OFF ? 0 : lw_program_time();
    if (phase == OFF || before < used_next)
        return;
    count_calls();
    uint64_t used = lw_program_time();
    double counted = measured.used + bare.used;
    bool enough = counted >= LEARN_FROM;
    if (enough)
        learn(used);
    bool chosen = learnt > 0;
    lw_sleds_switch(chosen ? LW_SLEDS_CHOSEN : LW_SLEDS_ON);
    phase = chosen ? CHOSEN : MEASURED;
    used_next = used + (!enough ? LEARN_FROM / 2 : (uint64_t)counted * pause_times());
}

void lw_budget_end(void) {
    if (phase == OFF)
        return;
    account(lw_program_time());
}

/* ---- summary --------------------------------------------------------------------------------- */

static struct {
    uint64_t functions, left_out;
    double calls, missed, longest; /* longest: greatest mean duration of a left-out function */
} sums;

static void add_to_sums(struct lw_site *site, double unused) {
    (void)unused;
    sums.functions += site->all >= 1;
    sums.left_out += site->left_out;
    sums.calls += site->all;
    sums.missed += site->missed;
    if (site->left_out && length_of(site) > sums.longest)
        sums.longest = length_of(site);
}

static double estimate(void) { return cost_time > 0 ? cost_sum / cost_time : 0; }

bool lw_budget_words(char *text, size_t room) {
    if (phase == OFF)
        return false;
    memset(&sums, 0, sizeof sums);
    each_site(add_to_sums, 0);
    snprintf(text, room,
             "overhead: an estimated %.1f %% of the program's CPU time; ticks of %.1f us on average; measuring a call costs %.1f ns here, and handing the clock over %llu ns; "
             "%llu of %llu functions were left out at times%s%s%s",
             estimate() * 100, (double)atomic_load(&lw_pace.tick) / 1000, call_cost, (unsigned long long)lw_overhead_handover(),
             (unsigned long long)sums.left_out, (unsigned long long)sums.functions, locks == LW_LOCKS_WAITS ? ", holders of locks too" : locks == LW_LOCKS_OFF ? ", locks too" : "", sched_out ? ", scheduler events too" : "",
             unreachable ? "; functions of some modules are always measured, for there is no memory in reach of their code" : "");
    return true;
}

static int by_missed(const void *a, const void *b) {
    const struct lw_site *one = *(struct lw_site *const *)a, *other = *(struct lw_site *const *)b;
    return (one->missed < other->missed) - (one->missed > other->missed);
}

/* Finds the left-out functions with the most missed calls. Returns how many. */
static size_t most_missed(struct lw_site *most[NAMED]) {
    size_t found = 0;
    for (struct lw_sites *each = lw_sites_first(); each; each = each->next)
        for (size_t i = 0; i < each->count; i++) {
            struct lw_site *site = &each->sites[i];
            if (!site->left_out || (found == NAMED && site->missed <= most[found - 1]->missed))
                continue;
            found += found < NAMED;
            most[found - 1] = site;
            qsort(most, found, sizeof *most, by_missed);
        }
    return found;
}

bool lw_budget_encode(struct lw_payload *p, uint64_t now) {
    if (phase == OFF)
        return false;
    struct lw_site *most[NAMED];
    size_t found = most_missed(most);
    memset(&sums, 0, sizeof sums);
    each_site(add_to_sums, 0);
    lw_put_u64(p, now);
    lw_put_varint(p, (uint64_t)(lw_config.overhead * 1e6));
    lw_put_varint(p, (uint64_t)(estimate() * 1e6));
    lw_put_varint(p, sums.functions);
    lw_put_varint(p, sums.left_out);
    lw_put_varint(p, (uint64_t)sums.calls);
    lw_put_varint(p, (uint64_t)sums.missed);
    lw_put_varint(p, (uint64_t)sums.longest);
    lw_put_u8(p, (uint8_t)((locks != LW_LOCKS_ALL) | sched_out << 1 | (locks == LW_LOCKS_OFF) << 2));
    lw_put_varint(p, found);
    for (size_t i = 0; i < found; i++) {
        lw_put_u64(p, most[i]->entry);
        lw_put_varint(p, (uint64_t)most[i]->all);
        lw_put_varint(p, (uint64_t)most[i]->missed);
        lw_put_varint(p, (uint64_t)length_of(most[i]));
    }
    return true;
}
