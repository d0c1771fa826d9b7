/* Declarations that the run-time's files share: the clock, rings, threads, blocks, the session. */
#pragma once

#include "abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Reached directly, also from position-independent code: most of it is linked into a program. */
#pragma GCC visibility push(hidden)

#define LW_LIKELY(x) __builtin_expect(!!(x), 1)
#define LW_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LW_INITIAL_EXEC __attribute__((tls_model("initial-exec")))

/* ---- clock ---------------------------------------------------------------------------------------------------------- */

static inline uint64_t lw_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void lw_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Gets a line that will be written from whichever CPU has it. Unlike a store it keeps nothing waiting, least of all the next
 * locked instruction. */
static inline void lw_prefetch_to_write(const void *line) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

void lw_sleep(uint64_t nanoseconds);

/* Fields of the clock's line. Whoever reads `now` and then another field, and cares, has an acquire fence in between. */
#define LW_GET(field) atomic_load_explicit(&lw_clock.field, memory_order_relaxed)
#define LW_SET(field, value) atomic_store_explicit(&lw_clock.field, value, memory_order_release)
/* Words of a shadow stack. */
#define LW_PEEK(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define LW_POKE(word, value) atomic_store_explicit(&(word), value, memory_order_relaxed)

/* ---- configuration (config.c) --------------------------------------------------------------------------------------- */

/* Of a path, as the system limits it, and of a trace's folder, whose name may get a number behind it. */
#define LW_PATH_ROOM 4096
#define LW_FOLDER_ROOM (LW_PATH_ROOM + 64)

enum lw_engine { LW_ENGINE_AUTO, LW_ENGINE_NONE, LW_ENGINE_TICK, LW_ENGINE_SCAN };

struct lw_config {
    bool on;               /* record from the start on */
    enum lw_engine engine; /* how calls are recorded */
    uint64_t tick;         /* nanoseconds between two ticks or scans; 0: as often as possible */
    double overhead;       /* share of the program's CPU time that recording may take; 0: whatever it takes */
    bool tick_follows;     /* ticks come as often as that share allows, whatever `tick` says */
    uint64_t threshold;    /* shortest call that is recorded */
    uint64_t lock_threshold;
    uint64_t segment; /* bytes */
    uint64_t disk;    /* bytes of all segments */
    uint64_t ring;    /* entries that a thread's ring may grow to, a power of two */
    uint64_t idle;    /* the clock sleeps once the program has for this long; 0: never */
    int cpu;          /* for the ticking thread; -1: any */
    int signal;       /* starts and stops; 0: none */
    bool locks;
    bool sched;
    bool sched_own; /* only by thread, though whole CPUs would be allowed */
    bool follow; /* record forked children, too */
    char dir[LW_PATH_ROOM];
};

extern struct lw_config lw_config;

/* Sets the defaults. Relative folders are below the working directory of this moment. */
void lw_config_default(struct lw_config *config);
/* Reads `text` into the configuration. NULL, or what is wrong with it. */
const char *lw_config_parse(struct lw_config *config, const char *text, char *error, size_t room);
/* The absolute path of the trace's folder for this process: `%p` becomes its id. False if it is
 * longer than the system allows, or unknown. */
bool lw_config_folder(const struct lw_config *config, bool child, char *into, size_t room);

/* ---- events and rings (ring.c) -------------------------------------------------------------------------------------- */

/* As in docs/trace-format.md. */
enum lw_kind {
    LW_CALL = 1,
    LW_HELD = 2,
    LW_WAITED = 3,
    LW_ACQUIRED = 4,
    LW_RELEASED = 5,
    LW_REQ_START = 6,
    LW_REQ_BLOCK = 7,
    LW_REQ_END = 8,
    LW_REQ_END_ALL = 9,
    LW_SWITCHED_OUT = 10,
    LW_SWITCHED_IN = 12,
    LW_LOST = 14,
    LW_LABEL = 15,
};

enum lw_object { LW_MUTEX, LW_READER, LW_WRITER, LW_CONDITION, LW_SPIN, LW_SEMAPHORE, LW_JOIN };

enum lw_topic { LW_ANYTHING, LW_CALLS, LW_LOCKS, LW_REQUESTS, LW_SCHED, LW_TOPICS };

#define LW_MARK_KNOWN 0x80u
#define LW_MARK_QUEUE 0x80u
#define LW_MARK_CUT 0x40u
#define LW_MARK_EARLY 0x20u
#define LW_MARK_RUNNABLE 0x10u

/* Two per cache line. Addresses have at most 56 bits. */
struct lw_event {
    uint64_t first;  /* function, lock or queue << 8 | marks and kind */
    uint64_t second; /* return address, call site or request */
    uint64_t extra;  /* CALL: its start; HELD: wait | hold << 32; WAITED, ACQUIRED: wait; LOST: how many; LABEL: its number */
    uint64_t time;   /* when it was over */
};

static inline uint64_t lw_pack(const volatile void *address, unsigned kind_and_marks) {
    return (uint64_t)(uintptr_t)address << 8 | kind_and_marks;
}

struct lw_block;

/* Memory of a ring: entries of the events from the `from`th of its thread on. The producer goes on in the next one, which is larger, when
 * one is full; the consumer empties the ones before first, and gives them back. */
struct lw_ring {
    uint64_t from;
    uint64_t mask;
    struct lw_event *entries;
    struct lw_ring *_Atomic next;
};

enum lw_life { LW_FREE, LW_LIVE, LW_EXITED, LW_DRAINED };

/* A thread of the program: its ring (one producer, itself; one consumer, the ticker), and what the ticker, the scanner
 * and the writer know of it. Never given back to the system, but used again. */
struct lw_thread {
    /* The producer's line. */
    _Alignas(LW_CACHE_LINE) _Atomic uint64_t head;
    uint64_t tail_seen;
    uint64_t mask;
    struct lw_event *entries;
    struct lw_ring *writing;
    /* Set while an event is written: a signal handler that comes in between must not write another. */
    volatile bool busy;

    /* Written only when the ring is full. */
    _Alignas(LW_CACHE_LINE) _Atomic uint64_t lost[LW_TOPICS];

    /* The consumer's line. */
    _Alignas(LW_CACHE_LINE) _Atomic uint64_t tail;
    struct lw_ring *reading;
    struct lw_block *block;
    uint64_t lost_told[LW_TOPICS];
    struct lw_scan *scan;

    _Alignas(LW_CACHE_LINE) _Atomic int life;
    uint32_t number;
    pid_t tid;
    uint64_t started;
    _Atomic uint64_t ended;
    char name[32];
    /* The segment that names this thread (+ 1), the writer's. */
    uint32_t announced;
    /* The scanner holds it while it reads the shadow, the thread while it takes it away. */
    atomic_flag shadow_lock;
    struct lw_shadow *shadow;
};

/* This thread's record; NULL before its first event, LW_NOBODY for threads that are none of ours to record. */
extern __thread struct lw_thread *lw_self LW_INITIAL_EXEC;
#define LW_NOBODY ((struct lw_thread *)1)

/* Whether something records: events are worth writing. */
extern _Atomic bool lw_recording;
/* What is recorded of locks: nothing, waits for them, or also who holds them since when. */
enum lw_locks { LW_LOCKS_OFF, LW_LOCKS_WAITS, LW_LOCKS_ALL };
extern _Atomic int lw_locks;
/* Locks taken while they were counted. */
extern _Atomic uint64_t lw_locks_counted;
/* Sets it, and lets the shim know, if there is one (shim.c). */
void lw_locks_switch(enum lw_locks what);
__attribute__((weak, visibility("default"))) void lw_shim_switch(enum lw_locks what);

/* This thread's record, made if need be; NULL if it has none. */
struct lw_thread *lw_thread_make(void);
static inline struct lw_thread *lw_thread_self(void) {
    struct lw_thread *self = lw_self;
    if (LW_LIKELY((uintptr_t)self > (uintptr_t)LW_NOBODY))
        return self;
    return self == LW_NOBODY ? NULL : lw_thread_make();
}

/* The ring seems to be full: looks how far it has been emptied, and goes on in a larger one if need be. Whether there is room. */
LW_PRESERVE bool lw_ring_make_room(struct lw_thread *self, uint64_t head);
/* The entry that is to be read next, by the consumer only. */
struct lw_event *lw_ring_entry(struct lw_thread *thread, uint64_t tail);
/* Forgets what is in the rings, while there is no consumer. */
void lw_ring_discard(struct lw_thread *thread);
/* Its first memory; false without any. */
bool lw_ring_begin(struct lw_thread *thread);

/* Appends an event of this thread to its ring, or counts it as lost. */
static inline void lw_push(struct lw_thread *self, enum lw_topic topic, uint64_t first, uint64_t second, uint64_t extra,
                           uint64_t time) {
    if (LW_UNLIKELY(self->busy)) {
        atomic_fetch_add_explicit(&self->lost[topic], 1, memory_order_relaxed);
        return;
    }
    self->busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    uint64_t head = atomic_load_explicit(&self->head, memory_order_relaxed);
    if (LW_UNLIKELY(head - self->tail_seen > self->mask) && !lw_ring_make_room(self, head)) {
        atomic_fetch_add_explicit(&self->lost[topic], 1, memory_order_relaxed);
    } else {
        struct lw_event *event = &self->entries[head & self->mask];
        event->first = first;
        event->second = second;
        event->extra = extra;
        event->time = time;
        atomic_store_explicit(&self->head, head + 1, memory_order_release);
        /* The ticker has read it since it was last written. */
        lw_prefetch_to_write(&self->entries[(head + 4) & self->mask]);
    }
    atomic_signal_fence(memory_order_seq_cst);
    self->busy = false;
}

/* ---- threads (thread.c) --------------------------------------------------------------------------------------------- */

#define LW_MAX_THREADS 4096
extern struct lw_thread *_Atomic lw_threads[LW_MAX_THREADS];
extern _Atomic uint32_t lw_thread_slots;
/* Threads that found no room. */
extern _Atomic uint64_t lw_threads_refused;

struct lw_thread *lw_thread_at(uint32_t slot);
uint32_t lw_thread_next_number(void);
#define LW_SHADOW_SLOTS 4096u
/* Makes this thread's record, and lets a scanner see it. */
void lw_thread_begin(void);
/* Before recording begins: what is left in rings is of another time. */
void lw_threads_discard(void);
/* In a forked child: all threads but the caller are gone, and what they had written is the parent's. */
void lw_threads_forget(void);
/* Lets all shadow stacks be written, or none. */
void lw_shadows_enable(bool enable);
void lw_thread_setup(void);

/* A short lock that no pthread shim can see. */
static inline void lw_lock(atomic_flag *lock) {
    for (int spins = 0; atomic_flag_test_and_set_explicit(lock, memory_order_acquire); spins++) {
        if (spins < 100)
            lw_relax();
        else
            lw_sleep(10000);
    }
}
static inline bool lw_try_lock(atomic_flag *lock) {
    return !atomic_flag_test_and_set_explicit(lock, memory_order_acquire);
}
static inline void lw_unlock(atomic_flag *lock) { atomic_flag_clear_explicit(lock, memory_order_release); }

/* ---- blocks (block.c) ----------------------------------------------------------------------------------------------- */

#define LW_BLOCK_BYTES 65536u
#define LW_BLOCK_FRONT 48u
#define LW_EVENT_ROOM 80u

enum { LW_BLOCK_HEADER = 1, LW_BLOCK_MODULES, LW_BLOCK_THREADS, LW_BLOCK_EVENTS, LW_BLOCK_CLOCK, LW_BLOCK_NOTE, LW_BLOCK_END, LW_BLOCK_PACE, LW_BLOCK_LABELS, LW_BLOCK_SHARE };

/* Events of one thread on their way to the file. */
struct lw_block {
    struct lw_thread *thread; /* whose life ends with this block if `last` */
    bool last;
    uint32_t number;
    uint32_t count;
    uint32_t length; /* of the bytes, front included */
    uint64_t opened;
    uint64_t base, earliest, latest, time;
    uint64_t first, second, id; /* what differences are taken from */
    uint64_t pairs[256][2];
    uint8_t used[256];
    uint8_t bytes[LW_BLOCK_BYTES];
};

/* The blocks' way round: the ticker takes free ones and hands in full ones, the writer the other way. */
bool lw_blocks_allocate(void);
void lw_blocks_reset(void);
struct lw_block *lw_block_take(void);
void lw_block_hand_in(struct lw_block *block);
struct lw_block *lw_block_next_full(void);
void lw_block_give_back(struct lw_block *block);

void lw_block_open(struct lw_block *block, uint32_t number, uint64_t now);
void lw_block_append(struct lw_block *block, const struct lw_event *event);
static inline bool lw_block_is_full(const struct lw_block *block) { return block->length > LW_BLOCK_BYTES - LW_EVENT_ROOM; }
/* Writes the events' header into the front; the block's own is the writer's. */
void lw_block_close(struct lw_block *block);

/* ---- ticker and scanner (ticker.c, scan.c) -------------------------------------------------------------------------- */

/* Events that the trace says are missing. */
extern _Atomic uint64_t lw_lost_total;
/* Writes an event of another thread on its behalf (the ticker's thread only). */
void lw_emit(struct lw_thread *thread, enum lw_topic topic, const struct lw_event *event, uint64_t now);
bool lw_ticker_start(enum lw_engine engine);
/* CPU time of the program's own threads; by the ticking thread and the control thread. */
uint64_t lw_program_time(void);
/* Stops it once all rings are empty and all blocks are handed in. */
void lw_ticker_stop(void);
/* Scans of a thread that found the same call as before; that read the stack; that were discarded because the thread moved
 * on meanwhile. And the mean pause between two looks at all threads, in 1/256 ns. */
extern _Atomic uint64_t lw_scans_same, lw_scans_full, lw_scans_raced, lw_scan_mean;

void lw_scan_all(uint64_t now);
/* Writes down the calls that still run when recording stops. */
void lw_scan_finish(uint64_t now);
bool lw_scan_prepare(struct lw_thread *thread);
/* Leaves out the calls that are on the stack now. */
void lw_scan_reset(struct lw_thread *thread, const struct lw_shadow *shadow);
void lw_scan_forget(struct lw_thread *thread, uint64_t now);

/* ---- files (writer.c, file.c, payload.c, modules.c, sched.c) ---------------------------------------------------------------------------- */

/* Begins the trace's first segment; false with a message if it can't. */
bool lw_writer_begin(enum lw_engine engine, bool child, char *error, size_t room);
/* As in docs/trace-format.md. */
enum lw_note { LW_NOTE_OTHER, LW_NOTE_SCHED, LW_NOTE_DISK, LW_NOTE_LOCKS, LW_NOTE_CALLS, LW_NOTE_REQUESTS };
enum lw_end { LW_END_STOPPED, LW_END_EXIT, LW_END_DISK, LW_END_SEGMENT, LW_END_FAILED, LW_END_EXEC };
/* Writes what is there; false once writing is no longer possible. */
bool lw_writer_step(void);
void lw_writer_end(int reason);
const char *lw_writer_folder(void);
/* What became of the clock, up to now. */
void lw_writer_pace(uint64_t now);
void lw_writer_note(int level, int topic, const char *text);
uint32_t lw_crc32c(uint32_t crc, const void *bytes, size_t length);
/* Appends a block of its own to the segment (sched.c). */
void lw_writer_write_events(struct lw_block *block);

void lw_writer_name_thread(uint32_t number, int tid);
/* In a forked child: forgets the files, which are the parent's. */
void lw_writer_abandon(void);

/* A payload that is put together. What doesn't fit is left out, and `overflow` says so. */
struct lw_payload {
    uint8_t *bytes;
    uint32_t length, room;
    bool overflow;
};
void lw_put_u8(struct lw_payload *p, uint8_t value);
void lw_put_u32(struct lw_payload *p, uint32_t value);
void lw_put_u64(struct lw_payload *p, uint64_t value);
void lw_put_varint(struct lw_payload *p, uint64_t value);
void lw_put_bytes(struct lw_payload *p, const void *bytes, size_t length);
void lw_put_text(struct lw_payload *p, const char *text);

/* The number of a label's text (labels.c). */
uint32_t lw_label_number(const char *text);
/* Puts together the payload of a labels block, behind label `from`; the last one that is in it. */
uint32_t lw_labels_encode(struct lw_payload *p, uint32_t from);

/* Whether modules came or went since the last call; looks at all of them if so. */
bool lw_modules_changed(uint64_t now);
/* Puts together the payload of a modules block, from module `from` on; the next one to begin with, 0 when all are in. */
uint32_t lw_modules_encode(struct lw_payload *p, uint32_t from);
/* Whether this code is part of the program, and was not preloaded. */
bool lw_modules_is_linked(void);
void lw_modules_reset(void);
/* Around a fork: nobody looks at the modules meanwhile, or the dynamic linker's lock would be held for ever in the child. */
void lw_modules_hold(void);
void lw_modules_let_go(void);

/* Scheduler events; NULL or why there are none. */
const char *lw_sched_begin(char *reason, size_t room);
void lw_sched_step(uint64_t now);
void lw_sched_end(void);
void lw_sched_abandon(void);
void lw_sched_ignore_this_thread(void);
/* Whether a thread of the run-time has not ended yet; by a thread of the program. */
bool lw_sched_has_own_threads(void);
/* Times that a thread of the program was switched out, as far as was recorded. */
uint64_t lw_sched_switches(void);
/* What recording one costs it, about, in nanoseconds. */
uint64_t lw_sched_cost(void);
/* Records no more of them. */
void lw_sched_mute(void);
/* The number that scheduler events gave to a thread that had no record yet; the thread takes it over. */
bool lw_sched_number(pid_t tid, uint32_t *number);

/* ---- descriptors and messages (descriptors.c, proc.c, list.c, say.c) ----------------------------------------------------- */

/* Gives the calling thread an empty table of file descriptors of its own; false where the system forbids it. */
bool lw_descriptors_unshare(void);
/* Whether this thread has left the program's table. */
extern __thread bool lw_has_own_descriptors LW_INITIAL_EXEC;
/* Lets go of the program's working directory, so that its file system can be unmounted. Containers may forbid it. */
void lw_leave_working_directory(void);
/* Opens a file or folder about a thread, for reading (proc.c); -1 where there is none. */
int lw_open_of_thread(pid_t tid, const char *name);
/* Calls `each` for all names in an opened folder. */
void lw_list(int folder, void (*each)(const char *name, void *data), void *data);

/* Remembers what standard error is, at the beginning of the process. */
void lw_say_begin(void);
/* Prints a line on the program's standard error, unless its descriptor is something else by now. By any thread. */
void lw_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints what the control thread could not; by a thread of the program. */
void lw_say_unsaid(void);

/* ---- session (session.c, control.c) ---------------------------------------------------------------------------------- */

enum lw_phase { LW_OFF, LW_ON, LW_ENDING };
extern _Atomic int lw_phase;
extern enum lw_engine lw_engine;

/* Both by the control thread only. NULL or what went wrong. */
const char *lw_session_start(bool child, char *error, size_t room);
void lw_session_stop(int reason);

/* Makes the control thread; waits until recording has begun if it is to begin at once. */
void lw_control_start(bool child);
/* Asks the control thread to stop all and waits until the trace is complete, or for two seconds. */
void lw_control_finish(void);
/* The same for good: all threads of the run-time end, and it makes no system call any more. By a thread of the program. */
void lw_control_leave(void);
bool lw_control_exists(void);
/* Whether the control thread has not yet begun to record, or to wait. */
bool lw_control_is_beginning(void);
/* In a forked child: the thread is gone, and whoever connects means the parent. */
void lw_control_abandon(void);
/* The CPU time of the control thread. */
clockid_t lw_control_clock(void);
/* A thread of ours: nothing of it is recorded, and signals are for the others. */
bool lw_helper_create(const char *name, void *(*run)(void *));
/* Set while this thread makes one, for the shim. */
extern __thread bool lw_making_helper LW_INITIAL_EXEC;

/* How often recording began: what the shim remembers of an earlier one is stale. */
extern _Atomic uint32_t lw_session;

/* At the end of the process (init.c). */
void lw_finish_process(void);
/* Whether this is the process that was prepared for recording, and no child of vfork that shares its memory. */
bool lw_is_recorded_process(void);
void lw_forget_process(void);

/* Filters of system calls (filters.c). Whether those that are there let a recording begin; */
bool lw_filters_allow(void);
/* before the control thread begins: what the program installs later comes here first. Part of the shim. */
__attribute__((weak, visibility("default"))) void lw_filters_begin(void);

#pragma GCC visibility pop
