/* One recording: starts its parts in order, and stops them in the opposite order. Only the control
 * thread runs this. */
#include "pace.h"
#include "sleds.h"

#include <stdio.h>
#include <string.h>

_Atomic int lw_phase;
_Atomic int lw_locks;
_Atomic uint32_t lw_session;
enum lw_engine lw_engine;

void lw_locks_switch(enum lw_locks what) {
    atomic_store(&lw_locks, what);
    if (lw_shim_switch)
        lw_shim_switch(what);
}

/* Patches the functions before the clock starts, so that no call is missed after that. */
static void patch(void) {
    char text[320];
    lw_sleds_switch(LW_SLEDS_ON);
    struct lw_sleds_count count = lw_sleds_counts();
    if (count.refused > 0) {
        snprintf(text, sizeof text,
                 "calls of %llu of %llu functions are missing: their code may not be changed here (%s); built with --leeward-patch=false they need no change",
                 (unsigned long long)count.refused, (unsigned long long)count.all, strerror(count.error));
        lw_writer_note(1, LW_NOTE_CALLS, text);
    }
    if (count.strange > 0) {
        snprintf(text, sizeof text, "calls of %llu of %llu functions are missing: something else is at their entry, such as a breakpoint",
                 (unsigned long long)count.strange, (unsigned long long)count.all);
        lw_writer_note(1, LW_NOTE_CALLS, text);
    }
}

const char *lw_session_start(bool child, char *error, size_t room) {
    if (atomic_load(&lw_phase) != LW_OFF) {
        snprintf(error, room, "recording already, to %s", lw_writer_folder());
        return error;
    }
    if (!lw_blocks_allocate()) {
        snprintf(error, room, "no memory for the trace's buffers");
        return error;
    }
    if (!lw_writer_begin(lw_engine, child, error, room))
        return error;
    atomic_fetch_add(&lw_session, 1);
    if (lw_modules_is_linked())
        lw_writer_note(0, LW_NOTE_CALLS, "the program was built with the run-time in it");
    atomic_store(&lw_scans_same, 0);
    atomic_store(&lw_scans_full, 0);
    atomic_store(&lw_scans_raced, 0);
    char reason[256];
    if (!lw_config.sched)
        lw_writer_note(0, LW_NOTE_SCHED, "no scheduler events: switched off");
    else if (!lw_budget_leaves_sched_out() && lw_sched_begin(reason, sizeof reason))
        lw_writer_note(1, LW_NOTE_SCHED, reason);
    lw_threads_discard();
    lw_pace_clear();
    if (lw_engine != LW_ENGINE_NONE)
        patch();
    if (!lw_ticker_start(lw_engine)) {
        lw_sleds_switch(LW_SLEDS_OFF);
        lw_sched_end();
        lw_writer_end(LW_END_FAILED);
        snprintf(error, room, "no thread for the clock could be made");
        return error;
    }
    lw_shadows_enable(lw_engine == LW_ENGINE_SCAN);
    lw_locks_switch(lw_config.locks ? LW_LOCKS_ALL : LW_LOCKS_OFF);
    lw_budget_begin();
    atomic_store(&lw_phase, LW_ON);
    return NULL;
}

static void note_how_it_went(void) {
    char text[512];
    lw_writer_pace(lw_now());
    if (atomic_exchange(&lw_ticker_unpinned, false))
        lw_writer_note(1, LW_NOTE_OTHER, "the clock's thread could not move to the CPU that cpu= asks for");
    double all = (double)(lw_now() - LW_GET(began)) / 100;
    uint64_t coarse = atomic_load(&lw_pace.coarse), stills = atomic_load(&lw_pace.stills);
    if (lw_budget_words(text, sizeof text))
        lw_writer_note(0, LW_NOTE_CALLS, text);
    if (coarse > 0) {
        snprintf(text, sizeof text,
                 "the machine was busy: for %.0f %% of the time the clock slept between ticks of %llu us%s, and calls shorter than two of them may be missing",
                 (double)coarse / all, (unsigned long long)(atomic_load(&lw_pace.coarse_tick) / 1000),
                 atomic_load(&lw_pace.real_time) ? "" : ", without real-time priority, which is not allowed here");
        lw_writer_note(1, LW_NOTE_CALLS, text);
    }
    if (stills > 0) {
        snprintf(text, sizeof text, "the clock stood still %llu times, for %.2f %% of the time in all, at most for %llu us: calls within are missing",
                 (unsigned long long)stills, (double)atomic_load(&lw_pace.stood) / all,
                 (unsigned long long)(atomic_load(&lw_pace.worst) / 1000));
        lw_writer_note((double)atomic_load(&lw_pace.stood) / all >= 0.1, LW_NOTE_CALLS, text);
    }
    uint64_t same = atomic_load(&lw_scans_same), full = atomic_load(&lw_scans_full), raced = atomic_load(&lw_scans_raced);
    if (same + full > 0) {
        double each = (double)(same + full + raced) / 100;
        snprintf(text, sizeof text, "scans: %llu ns between two valid ones, %.0f %% found no change, %.0f %% read the stack, %.0f %% were discarded",
                 (unsigned long long)((lw_now() - LW_GET(began)) / (same + full)), (double)same / each, (double)full / each,
                 (double)raced / each);
        lw_writer_note(0, LW_NOTE_CALLS, text);
    }
    uint64_t refused = atomic_load(&lw_threads_refused);
    if (refused > 0) {
        snprintf(text, sizeof text, "%llu threads were not recorded: more than %u at a time, or no memory", (unsigned long long)refused,
                 LW_MAX_THREADS);
        lw_writer_note(1, LW_NOTE_OTHER, text);
    }
}

void lw_session_stop(int reason) {
    if (atomic_load(&lw_phase) != LW_ON)
        return;
    atomic_store(&lw_phase, LW_ENDING);
    lw_budget_end();
    lw_locks_switch(LW_LOCKS_OFF);
    lw_shadows_enable(false);
    /* At the process's end the jumps may stay. */
    if (reason != LW_END_EXIT)
        lw_sleds_switch(LW_SLEDS_OFF);
    lw_ticker_stop();
    lw_sched_end();
    note_how_it_went();
    lw_writer_end(reason);
    atomic_store(&lw_phase, LW_OFF);
}
