/* Life cycle of the run-time in a process: begin before main, fork, end. Does nothing unless
 * LEEWARD_PROFILE is set. */
#include "file.h"
#include "sleds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Only the first copy of the run-time in the program is active: a preloaded copy is inactive if
 * another is linked in. */
LW_EXPORT char __leeward_first_copy;
extern char own_copy __asm__("lw_own_copy");
__asm__(".hidden lw_own_copy\n.set lw_own_copy, __leeward_first_copy");

/* Defined by objects that were compiled for the scan engine. */
extern const char scan_wanted __asm__("__leeward_scan_wanted") __attribute__((weak));

static pid_t process;

static void decide_engine(void) {
    lw_engine = lw_config.engine;
    if (lw_engine == LW_ENGINE_AUTO)
        lw_engine = &scan_wanted ? LW_ENGINE_SCAN : LW_ENGINE_TICK;
}

static void before_fork(void) {
    lw_modules_hold();
    lw_sleds_hold();
}
static void after_fork_in_parent(void) {
    lw_sleds_let_go();
    lw_modules_let_go();
}

/* In the child the parent's threads do not exist, and the files are the parent's. The child records
 * into a trace of its own. */
static void after_fork_in_child(void) {
    after_fork_in_parent();
    if (process == 0)
        return;
    /* The parent may fork before its control thread has begun to record; it was about to. */
    bool was_on = atomic_load(&lw_phase) != LW_OFF || (lw_config.on && lw_control_is_beginning());
    bool wanted = lw_control_exists() && lw_config.follow;
    process = getpid();
    atomic_store(&lw_recording, false);
    lw_locks_switch(LW_LOCKS_OFF);
    atomic_store(&lw_phase, LW_OFF);
    lw_threads_forget();
    lw_blocks_reset();
    lw_writer_abandon();
    lw_sched_abandon();
    lw_control_abandon();
    /* Keep the jumps: removing them would copy every page of code for a child that may end soon. */
    if (!wanted || !was_on)
        lw_sleds_forget();
    if (!wanted)
        return;
    lw_config.on = was_on;
    lw_thread_begin();
    /* Calls until recording resumes are recorded as well. */
    if (was_on && lw_shadow.slots)
        LW_POKE(lw_shadow.limit, LW_SHADOW_SLOTS);
    lw_control_start(true);
}

__attribute__((constructor(101))) static void begin(void) {
    char *first = &__leeward_first_copy, *own = &own_copy;
    /* Otherwise the compiler assumes that two names are two objects. */
    __asm__("" : "+r"(first), "+r"(own));
    if (first != own)
        return;
    const char *options = getenv("LEEWARD_PROFILE");
    if (!options || *options == '\0' || strcmp(options, "off") == 0 || strcmp(options, "0") == 0)
        return;
    char error[512];
    lw_say_begin();
    lw_file_setup();
    lw_config_default(&lw_config);
    if (lw_config_parse(&lw_config, options, error, sizeof error)) {
        lw_say("LEEWARD_PROFILE: %s; not recording", error);
        return;
    }
    if (!lw_filters_allow()) {
        lw_say("not recording: a filter of system calls that this program was started under forbids what recording needs");
        return;
    }
    if (lw_filters_begin)
        lw_filters_begin();
    process = getpid();
    decide_engine();
    lw_thread_setup();
    lw_thread_begin();
    lw_control_start(false);
}

/* Registers the fork handlers after other constructors' ones. The child's handlers run in the order
 * of registration. So locks that others acquired around the fork (an allocator's) are free again
 * when the run-time's handler runs. */
__attribute__((constructor)) static void listen_to_fork(void) {
    if (process != 0)
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

bool lw_is_recorded_process(void) { return process != 0 && process == getpid(); }

void lw_forget_process(void) { process = 0; }

void lw_finish_process(void) {
    if (lw_is_recorded_process())
        lw_control_finish();
}

__attribute__((destructor(101))) static void end(void) { lw_finish_process(); }
