/* How the clock thread waits for its next tick, and which stalls of the clock it notes.
 *
 * While there is a CPU for it, the clock thread spins. When other work takes its CPU, it sleeps
 * between ticks that are further apart. A sleeping thread gets a CPU when it wakes; a spinning one
 * has to wait for its turn, some milliseconds at a time. Where the process may, the clock thread
 * sleeps with a real-time priority. It spins again once a CPU is free. */
#include "pace.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The clock thread always sleeps between ticks that are at least this far apart. */
#define SLEEPS_FROM 20000u
/* Tick of a clock that sleeps because the machine is busy. Two wake-ups in a hundred microseconds
 * cost about 5 % of a CPU. */
#define COARSE_TICK 50000u
/* A gap up to this length is never a stall. */
#define STILL_LEAST 50000u
/* The clock thread is starved after one gap of STARVED, or after gaps of STARVED_IN_WINDOW in all
 * within STARVED_WINDOW. */
#define STARVED 1000000u
#define STARVED_WINDOW 100000000u
#define STARVED_IN_WINDOW 4000000u
/* Time for which the clock thread sleeps before it may spin again. It doubles each time that
 * spinning was too early. */
#define CALM_LEAST 1000000000u
#define CALM_MOST 64000000000u
#define LOOK_PAUSE 20000000u
#define USED_PAUSE 5000000u
/* Stalls of some tenths of a second on the worst of machines. */
#define STILLS 8192u

struct lw_pace lw_pace;

static struct lw_still stills[STILLS];
static _Atomic uint32_t stills_head, stills_tail;

static bool starved;
static uint64_t calm_from, calm, last_entry;
static uint64_t window, window_stood;
static uint64_t last_delay;
static uint64_t used_begin, used_at, used_then;
static uint64_t look_at, looks, seen_running;
static bool alone_on_cpus;
static int cpus, load_file = -1, delay_file = -1;
static uint64_t pauses;

/* ---- load and delay -------------------------------------------------------------------------- */

/* Reads the number after `skip` separators from a file of one line. UINT64_MAX if there is none. */
static uint64_t number_in(int file, const char *separators, int skip) {
    char text[256];
    ssize_t length = file >= 0 ? pread(file, text, sizeof text - 1, 0) : -1;
    if (length <= 0)
        return UINT64_MAX;
    text[length] = '\0';
    const char *at = text;
    for (; skip > 0 && at; skip--)
        if ((at = strpbrk(at, separators)))
            at++;
    return at ? strtoull(at, NULL, 10) : UINT64_MAX;
}

/* Threads of this machine that run or are runnable, except this one. */
static uint64_t others_running(void) {
    uint64_t running = number_in(load_file, " ", 3);
    return running == UINT64_MAX || running == 0 ? running : running - 1;
}

/* Time that this thread has waited for a CPU so far. */
static uint64_t delay(void) { return number_in(delay_file, " ", 1); }

static void look_around(void) {
    cpu_set_t mine;
    cpus = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
    /* If this process may not use all CPUs, the machine's load says nothing about the CPUs that it
     * may use. */
    alone_on_cpus = cpus == sysconf(_SC_NPROCESSORS_ONLN);
    load_file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    delay_file = lw_open_of_thread((pid_t)syscall(SYS_gettid), "schedstat");
}

/* ---- spinning and sleeping ------------------------------------------------------------------- */

#define PAUSES 64u

/* Measures PAUSES pause instructions in nanoseconds: the least of 8 tries, because the thread may
 * be interrupted. */
static uint64_t pauses_length(void) {
    uint64_t least = UINT64_MAX;
    for (int turn = 0; turn < 8; turn++) {
        uint64_t before = lw_now();
        for (unsigned n = 0; n < PAUSES; n++)
            lw_relax();
        uint64_t length = lw_now() - before;
        if (length < least)
            least = length;
    }
    return least > 0 ? least : 1;
}

/* Tick while there is a CPU for the clock thread. */
static uint64_t wanted_tick(void) { return lw_config.tick_follows ? lw_overhead_tick() : lw_config.tick; }

uint64_t lw_pace_tick(void) {
    uint64_t tick = wanted_tick();
    return starved && tick < COARSE_TICK ? COARSE_TICK : tick;
}

static bool sleeps(void) { return starved || wanted_tick() >= SLEEPS_FROM; }

void lw_pace_wait(uint64_t next, uint64_t now) {
    if (sleeps()) {
        lw_sleep(next - now);
        return;
    }
    /* Execute pause instructions for half of the remaining time, without reading the clock: that
     * would take execution units from the core's other hardware thread. Only half, because a pause
     * may take longer than it did when it was measured. */
    for (uint64_t n = (next - now) / 2 * PAUSES / pauses; n > 0; n--)
        lw_relax();
    lw_relax();
}

/* A real-time thread gets a CPU at once when it wakes. If it spun, other threads would get
 * nothing. */
static void set_priority(bool real_time) {
    struct sched_param parameter = {.sched_priority = real_time ? 1 : 0};
    if (sched_setscheduler(0, real_time ? SCHED_FIFO : SCHED_OTHER, &parameter) == 0 && real_time)
        atomic_store_explicit(&lw_pace.real_time, true, memory_order_relaxed);
}

/* Publishes the thresholds for the current tick. A tick may fall into a short hold by chance: that
 * hold must stay below its threshold. */
static void tell_clock(void) {
    uint64_t tick = lw_pace_tick(), wanted = wanted_tick();
    bool coarse = tick > wanted;
    uint64_t slack = coarse ? tick + tick / 2 : wanted / 2;
    /* Differences of the clock are whole ticks, plus or minus a tick's delay. */
    LW_SET(threshold, lw_config.threshold > wanted / 2 ? lw_config.threshold - wanted / 2 : 0);
    LW_SET(hold_threshold, lw_config.lock_threshold > 0 ? lw_config.lock_threshold + slack : 0);
    LW_SET(previous, UINT64_MAX);
    LW_SET(coarse, coarse);
}

static void go_to_sleep(uint64_t now) {
    starved = true;
    calm = now - last_entry < 10 * calm && last_entry != 0 ? calm * 2 : CALM_LEAST;
    if (calm > CALM_MOST)
        calm = CALM_MOST;
    calm_from = last_entry = now;
    looks = seen_running = 0;
    set_priority(true);
    atomic_store_explicit(&lw_pace.coarse_tick, lw_pace_tick(), memory_order_relaxed);
    tell_clock();
}

static void wake_up(uint64_t now) {
    starved = false;
    window = now;
    window_stood = 0;
    set_priority(false);
    tell_clock();
}

/* Whether a spinning thread would have a CPU for itself, by the load since the clock thread went to
 * sleep. */
static bool is_room(void) {
    if (!alone_on_cpus || lw_config.cpu >= 0 || looks == 0)
        return true;
    /* The system's own work takes up to a quarter of a thread. */
    return seen_running + looks <= (uint64_t)cpus * looks + looks / 4;
}

static void consider_spinning(uint64_t now) {
    if (now >= look_at) {
        look_at = now + LOOK_PAUSE;
        uint64_t running = others_running();
        if (running != UINT64_MAX) {
            seen_running += running;
            looks++;
        }
    }
    if (now - calm_from < calm)
        return;
    if (is_room()) {
        wake_up(now);
        return;
    }
    calm_from = now;
    looks = seen_running = 0;
}

/* ---- stalls ---------------------------------------------------------------------------------- */

static void add(_Atomic uint64_t *sum, uint64_t more) {
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + more, memory_order_relaxed);
}

/* CPU time that the program used in the last `length` nanoseconds. Reads it now, and divides the
 * time since the last reading in proportion. */
static uint64_t used_in(uint64_t length, uint64_t now) {
    uint64_t used = lw_program_time(), since = now - used_then;
    uint64_t more = used > used_at ? used - used_at : 0;
    used_at = used;
    used_then = now;
    atomic_store_explicit(&lw_pace.used, used > used_begin ? used - used_begin : 0, memory_order_relaxed);
    return length < since ? (uint64_t)((double)more * (double)length / (double)since) : more;
}

static void stood_still(uint64_t before, uint64_t length, uint64_t used) {
    add(&lw_pace.stills, 1);
    add(&lw_pace.stood, length);
    if (length > atomic_load_explicit(&lw_pace.worst, memory_order_relaxed))
        atomic_store_explicit(&lw_pace.worst, length, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&stills_head, memory_order_relaxed);
    /* A stall without a free slot is only in the sums. */
    if (head - atomic_load_explicit(&stills_tail, memory_order_acquire) < STILLS) {
        stills[head % STILLS] = (struct lw_still){.start = before, .length = length, .used = used};
        atomic_store_explicit(&stills_head, head + 1, memory_order_release);
    }
}

bool lw_pace_take(struct lw_still *into) {
    uint32_t tail = atomic_load_explicit(&stills_tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&stills_head, memory_order_acquire))
        return false;
    *into = stills[tail % STILLS];
    atomic_store_explicit(&stills_tail, tail + 1, memory_order_release);
    return true;
}

/* Whether this thread waited for a CPU during the gap, by the kernel's account. If not, the gap
 * comes from the virtual machine. */
static bool was_made_to_wait(uint64_t length) {
    uint64_t now = delay(), waited = now - last_delay;
    bool unknown = now == UINT64_MAX || last_delay == UINT64_MAX;
    last_delay = now;
    return unknown || waited >= length / 2;
}

void lw_pace_ticked(uint64_t before, uint64_t now) {
    uint64_t gap = now - before, tick = lw_pace_tick();
    if (starved)
        add(&lw_pace.coarse, gap);
    add(&lw_pace.ticks, 1);
    if (lw_config.overhead > 0) {
        uint64_t ticks = atomic_load_explicit(&lw_pace.ticks, memory_order_relaxed);
        if (lw_config.tick_follows)
            atomic_store_explicit(&lw_pace.tick, (now - LW_GET(began)) / ticks, memory_order_relaxed);
        if (lw_overhead_look(now, ticks, lw_events_taken))
            tell_clock();
    }
    /* A sleeping clock thread is a little late at each tick. */
    bool still = gap > STILL_LEAST && gap > (sleeps() ? 2 * tick : 10 * tick);
    if (still)
        stood_still(before, gap, used_in(gap, now));
    else if (now - used_then >= USED_PAUSE)
        used_in(0, now);
    if (starved) {
        consider_spinning(now);
        return;
    }
    if (!still)
        return;
    if (now - window > STARVED_WINDOW) {
        window = now;
        window_stood = 0;
    }
    bool waited = was_made_to_wait(gap);
    window_stood += waited ? gap : 0;
    if (waited && (gap >= STARVED || window_stood >= STARVED_IN_WINDOW))
        go_to_sleep(now);
}

void lw_pace_clear(void) {
    memset(&lw_pace, 0, sizeof lw_pace);
    atomic_store(&stills_head, 0);
    atomic_store(&stills_tail, 0);
}

void lw_pace_begin(uint64_t now) {
    look_around();
    pauses = pauses_length();
    if (lw_config.overhead > 0)
        lw_overhead_begin();
    atomic_store(&lw_pace.tick, wanted_tick());
    starved = false;
    last_entry = look_at = window_stood = 0;
    calm = CALM_LEAST;
    window = used_then = now;
    used_begin = used_at = lw_program_time();
    last_delay = delay();
    tell_clock();
    /* This thread, and one thread of the program. */
    uint64_t running = others_running();
    if (alone_on_cpus && lw_config.cpu < 0 && running != UINT64_MAX && running + 2 > (uint64_t)cpus)
        go_to_sleep(now);
}

void lw_pace_end(uint64_t now) {
    used_in(0, now);
    set_priority(false);
    if (load_file >= 0)
        close(load_file);
    if (delay_file >= 0)
        close(delay_file);
    load_file = delay_file = -1;
}
