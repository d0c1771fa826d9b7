/* Declarations shared by the run-time's files: clock, rings, threads, blocks, session. */
#pragma once

#include "abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Hidden symbols are addressed directly, also from position-independent code. Most of the run-time
 * is linked into a program. */
#pragma GCC visibility push(hidden)

#define LW_LIKELY(x) __builtin_expect(!!(x), 1)
#define LW_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define LW_INITIAL_EXEC __attribute__((tls_model("initial-exec")))

/* ---- clock ----------------------------------------------------------------------------------- */

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

/* Fetches a cache line from another CPU for writing.
 *
 * Unlike a store, the prefetch delays no later instruction, in particular no locked one. */
static inline void lw_prefetch_to_write(const void *line) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

void lw_sleep(uint64_t nanoseconds);

/* Access to the fields of the clock's line. A reader that needs `now` and another field in this
 * order puts an acquire fence in between. */
#define LW_GET(field) atomic_load_explicit(&lw_clock.field, memory_order_relaxed)
#define LW_SET(field, value) atomic_store_explicit(&lw_clock.field, value, memory_order_release)
/* Access to the words of a shadow stack. */
#define LW_PEEK(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define LW_POKE(word, value) atomic_store_explicit(&(word), value, memory_order_relaxed)

/* ---- configuration (config.c) ---------------------------------------------------------------- */

/* Size of a path, as limited by the system, and of the trace's folder, whose name may get a number
 * appended. */
#define LW_PATH_ROOM 4096
#define LW_FOLDER_ROOM (LW_PATH_ROOM + 64)

enum lw_engine { LW_ENGINE_AUTO, LW_ENGINE_NONE, LW_ENGINE_TICK, LW_ENGINE_SCAN };

struct lw_config {
    bool on;               /* record from the start */
    enum lw_engine engine; /* how calls are recorded */
    uint64_t tick;         /* nanoseconds between two ticks or scans; 0: no pause */
    double overhead;       /* share of CPU time for recording; 0: no limit */
    bool tick_follows;     /* `overhead` sets the tick, not `tick` */
    uint64_t threshold;    /* shortest call that is recorded */
    uint64_t lock_threshold;
    uint64_t segment; /* bytes */
    uint64_t disk;    /* bytes of all segments */
    uint64_t ring;    /* largest ring of a thread in entries, a power of two */
    uint64_t idle;    /* program idle for this long: clock sleeps; 0: never */
    int cpu;          /* of the clock thread; -1: any */
    int signal;       /* starts and stops recording; 0: none */
    bool locks;
    bool sched;
    bool sched_own; /* scheduler events per thread, even if whole CPUs are allowed */
    bool follow; /* record forked children, too */
    char dir[LW_PATH_ROOM];
};

extern struct lw_config lw_config;

/* Sets the defaults. Relative folders are resolved against the working directory at this call. */
void lw_config_default(struct lw_config *config);
/* Parses `text` into the configuration. Returns NULL, or an error message. */
const char *lw_config_parse(struct lw_config *config, const char *text, char *error, size_t room);
/* Absolute path of this process's trace folder: `%p` becomes the process id. False if the path is
 * too long or unknown. */
bool lw_config_folder(const struct lw_config *config, bool child, char *into, size_t room);

/* ---- events and rings (ring.c) --------------------------------------------------------------- */

/* Kinds of events, as in docs/trace-format.md. */
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
    LW_OTHER = 15,
};

/* Sorts of LW_OTHER events. The event's address is the sort, and above its eight bits the field of
 * a context or the label of a peer. */
enum lw_sort { LW_LABEL = 1, LW_CONTEXT, LW_REMOTE_CALL, LW_REMOTE_ANSWER };
/* Fields of a request's trace context. */
enum lw_context { LW_TRACE_HIGH = 1, LW_TRACE_LOW, LW_SPAN, LW_PARENT };

enum lw_object { LW_MUTEX, LW_READER, LW_WRITER, LW_CONDITION, LW_SPIN, LW_SEMAPHORE, LW_JOIN };

enum lw_topic { LW_ANYTHING, LW_CALLS, LW_LOCKS, LW_REQUESTS, LW_SCHED, LW_TOPICS };

#define LW_MARK_KNOWN 0x80u
#define LW_MARK_QUEUE 0x80u
#define LW_MARK_CUT 0x40u
#define LW_MARK_EARLY 0x20u
#define LW_MARK_RUNNABLE 0x10u

/* One event; two fit into a cache line. Addresses have at most 56 bits. */
struct lw_event {
    uint64_t first;  /* function, lock or queue << 8 | marks and kind */
    uint64_t second; /* return address, call site or request */
    /* CALL: its start; HELD: wait | hold << 32; WAITED, ACQUIRED: wait; LOST: number of events;
     * OTHER: number of the label, value of the field, or span id */
    uint64_t extra;
    uint64_t time;   /* end of the event */
};

static inline uint64_t lw_pack(const volatile void *address, unsigned kind_and_marks) {
    return (uint64_t)(uintptr_t)address << 8 | kind_and_marks;
}

struct lw_block;

/* Memory of a ring: entries of its thread's events, beginning with event number `from`.
 *
 * When a ring is full, the producer goes on in `next`, which is larger. The consumer empties the
 * earlier rings first and unmaps them. */
struct lw_ring {
    uint64_t from;
    uint64_t mask;
    struct lw_event *entries;
    struct lw_ring *_Atomic next;
};

enum lw_life { LW_FREE, LW_LIVE, LW_EXITED, LW_DRAINED };

/* Record of one program thread: its ring, and the state that clock thread, scanner and writer keep
 * for it.
 *
 * The ring has one producer, the thread itself, and one consumer, the clock thread. A record is
 * never unmapped, but reused. */
struct lw_thread {
    /* Line of the producer. */
    _Alignas(LW_CACHE_LINE) _Atomic uint64_t head;
    uint64_t tail_seen;
    uint64_t mask;
    struct lw_event *entries;
    struct lw_ring *writing;
    /* Set while the thread writes an event: a signal handler that interrupts it must not write
     * another. */
    volatile bool busy;

    /* Written only when the ring is full. */
    _Alignas(LW_CACHE_LINE) _Atomic uint64_t lost[LW_TOPICS];

    /* Line of the consumer. */
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
    /* Number + 1 of the segment that names this thread. Belongs to the writer. */
    uint32_t announced;
    /* The scanner holds it while it reads the shadow stack; the thread holds it while it removes
     * that stack. */
    atomic_flag shadow_lock;
    struct lw_shadow *shadow;
};

/* Record of this thread. NULL before its first event; LW_NOBODY for a thread that is not
 * recorded. */
extern __thread struct lw_thread *lw_self LW_INITIAL_EXEC;
#define LW_NOBODY ((struct lw_thread *)1)

/* Whether a recording is running. */
extern _Atomic bool lw_recording;
/* What is recorded of locks: nothing, only waits, or waits and holds. */
enum lw_locks { LW_LOCKS_OFF, LW_LOCKS_WAITS, LW_LOCKS_ALL };
extern _Atomic int lw_locks;
/* Locks acquired while acquisitions were counted. */
extern _Atomic uint64_t lw_locks_counted;
/* Sets `lw_locks`, and informs the shim if the program has it (shim.c). */
void lw_locks_switch(enum lw_locks what);
__attribute__((weak, visibility("default"))) void lw_shim_switch(enum lw_locks what);
/* The same for locks that call the kernel themselves (shim_futex.c). */
void lw_futex_switch(enum lw_locks what);

/* Record of this thread, created if necessary; NULL if there is none. */
struct lw_thread *lw_thread_make(void);
static inline struct lw_thread *lw_thread_self(void) {
    struct lw_thread *self = lw_self;
    if (LW_LIKELY((uintptr_t)self > (uintptr_t)LW_NOBODY))
        return self;
    return self == LW_NOBODY ? NULL : lw_thread_make();
}

/* Handles a ring that seems full: reads the consumer's position, and moves to a larger ring if
 * necessary. Returns whether an entry is free. */
LW_PRESERVE bool lw_ring_make_room(struct lw_thread *self, uint64_t head);
/* Entry to be read next. For the consumer only. */
struct lw_event *lw_ring_entry(struct lw_thread *thread, uint64_t tail);
/* Discards the events in the rings, while there is no consumer. */
void lw_ring_discard(struct lw_thread *thread);
/* Maps the first memory of a ring; false if there is none. */
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
        /* The clock thread has read this line since the last write, so this core must fetch it for
         * writing. */
        lw_prefetch_to_write(&self->entries[(head + 4) & self->mask]);
    }
    atomic_signal_fence(memory_order_seq_cst);
    self->busy = false;
}

/* ---- threads (thread.c) ---------------------------------------------------------------------- */

#define LW_MAX_THREADS 4096
extern struct lw_thread *_Atomic lw_threads[LW_MAX_THREADS];
extern _Atomic uint32_t lw_thread_slots;
/* Threads that got no record. */
extern _Atomic uint64_t lw_threads_refused;

struct lw_thread *lw_thread_at(uint32_t slot);
uint32_t lw_thread_next_number(void);
#define LW_SHADOW_SLOTS 4096u
/* Creates this thread's record, and lets the scanner see its shadow stack. */
void lw_thread_begin(void);
/* Before a recording begins: discards events of an earlier one. */
void lw_threads_discard(void);
/* In a forked child: forgets all other threads, which do not exist there, and their events, which
 * are the parent's. */
void lw_threads_forget(void);
/* Lets all threads write their shadow stacks, or none. */
void lw_shadows_enable(bool enable);
void lw_thread_setup(void);

/* Short lock: a thread spins, then sleeps between attempts. The pthread shim does not intercept
 * it. */
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

/* ---- blocks (block.c) ------------------------------------------------------------------------ */

#define LW_BLOCK_BYTES 65536u
#define LW_BLOCK_FRONT 48u
#define LW_EVENT_ROOM 80u

enum { LW_BLOCK_HEADER = 1, LW_BLOCK_MODULES, LW_BLOCK_THREADS, LW_BLOCK_EVENTS, LW_BLOCK_CLOCK, LW_BLOCK_NOTE, LW_BLOCK_END, LW_BLOCK_PACE, LW_BLOCK_LABELS, LW_BLOCK_SHARE, LW_BLOCK_STACKS = 12 };

/* Events of one thread on their way to the file. */
struct lw_block {
    struct lw_thread *thread; /* its record is freed after this block if `last` */
    bool last;
    uint32_t number;
    uint32_t count;
    uint32_t length; /* of `bytes`, including the front */
    uint64_t opened;
    uint64_t base, earliest, latest, time;
    uint64_t first, second, id; /* previous values, from which differences are taken */
    uint64_t pairs[256][2];
    uint8_t used[256];
    uint8_t bytes[LW_BLOCK_BYTES];
};

/* Passes blocks between threads. The clock thread takes free blocks and hands in full ones; the
 * control thread takes full blocks and gives them back. */
bool lw_blocks_allocate(void);
void lw_blocks_reset(void);
struct lw_block *lw_block_take(void);
void lw_block_hand_in(struct lw_block *block);
struct lw_block *lw_block_next_full(void);
void lw_block_give_back(struct lw_block *block);

void lw_block_open(struct lw_block *block, uint32_t number, uint64_t now);
void lw_block_append(struct lw_block *block, const struct lw_event *event);
static inline bool lw_block_is_full(const struct lw_block *block) { return block->length > LW_BLOCK_BYTES - LW_EVENT_ROOM; }
/* Writes the events' header into the block's front. The writer adds the block's own head. */
void lw_block_close(struct lw_block *block);

/* ---- ticker and scanner (ticker.c, scan.c) --------------------------------------------------- */

/* Lost events that the trace reports. */
extern _Atomic uint64_t lw_lost_total;
/* True if the clock thread could not move to the CPU of `cpu=`. The control thread writes the note
 * when recording ends: only it writes the file. */
extern _Atomic bool lw_ticker_unpinned;
/* Writes an event on behalf of another thread. Only for the clock thread. */
void lw_emit(struct lw_thread *thread, enum lw_topic topic, const struct lw_event *event, uint64_t now);
bool lw_ticker_start(enum lw_engine engine);
/* CPU time of the program's own threads. For the clock thread and the control thread. */
uint64_t lw_program_time(void);
/* Stops the clock thread after it has emptied all rings and handed in all blocks. */
void lw_ticker_stop(void);
/* Scans of a thread that found the same call as before; that read the stack; that were discarded
 * because the thread moved on. `lw_scan_mean` is the mean pause between two scans of all threads,
 * in 1/256 ns. */
extern _Atomic uint64_t lw_scans_same, lw_scans_full, lw_scans_raced, lw_scan_mean;

void lw_scan_all(uint64_t now);
/* Writes the calls that are still running when recording stops. */
void lw_scan_finish(uint64_t now);
bool lw_scan_prepare(struct lw_thread *thread);
/* Excludes the calls that are on the stack now. */
void lw_scan_reset(struct lw_thread *thread, const struct lw_shadow *shadow);
void lw_scan_forget(struct lw_thread *thread, uint64_t now);

/* ---- files (writer.c, file.c, payload.c, modules.c, sched.c) --------------------------------- */

/* Begins the trace's first segment; false with a message if that fails. */
bool lw_writer_begin(enum lw_engine engine, bool child, char *error, size_t room);
/* Topics of notes and reasons of ends, as in docs/trace-format.md. */
enum lw_note { LW_NOTE_OTHER, LW_NOTE_SCHED, LW_NOTE_DISK, LW_NOTE_LOCKS, LW_NOTE_CALLS, LW_NOTE_REQUESTS };
enum lw_end { LW_END_STOPPED, LW_END_EXIT, LW_END_DISK, LW_END_SEGMENT, LW_END_FAILED, LW_END_EXEC };
/* Writes all blocks that are ready; false after writing has failed. */
bool lw_writer_step(void);
void lw_writer_end(int reason);
const char *lw_writer_folder(void);
/* Writes the clock's counters up to now. */
void lw_writer_pace(uint64_t now);
void lw_writer_note(int level, int topic, const char *text);
uint32_t lw_crc32c(uint32_t crc, const void *bytes, size_t length);
/* Writes a block that the caller owns to the segment (sched.c). */
void lw_writer_write_events(struct lw_block *block);

void lw_writer_name_thread(uint32_t number, int tid);
/* In a forked child: forgets the files, which are the parent's. */
void lw_writer_abandon(void);

/* Buffer for the payload of a block. Data that does not fit is left out, and `overflow` is set. */
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

/* Number of a label's text (labels.c). */
uint32_t lw_label_number(const char *text);
/* Encodes the payload of a labels block with labels after number `from`. Returns the last number in
 * it. */
uint32_t lw_labels_encode(struct lw_payload *p, uint32_t from);

/* Number of the stack whose innermost frame is this one (stacks.c); 0 if it can't be read. */
uint32_t lw_stack_number(const void *frame);
/* Encodes the payload of a stacks block, as `lw_labels_encode` does. */
uint32_t lw_stacks_encode(struct lw_payload *p, uint32_t from);

/* Whether modules were loaded or unloaded since the last call; if so, reads all of them again. */
bool lw_modules_changed(uint64_t now);
/* Encodes the payload of a modules block from module `from` on. Returns the next one to encode, or
 * 0 after the last. */
uint32_t lw_modules_encode(struct lw_payload *p, uint32_t from);
/* Whether this code is linked into the program, not preloaded. */
bool lw_modules_is_linked(void);
void lw_modules_reset(void);
/* Before and after a fork: excludes a walk over the modules, which would leave the dynamic linker's
 * lock held in the child for ever. */
void lw_modules_hold(void);
void lw_modules_let_go(void);

/* Starts scheduler events. Returns NULL, or the reason why some or all are missing. */
const char *lw_sched_begin(char *reason, size_t room);
void lw_sched_step(uint64_t now);
void lw_sched_end(void);
void lw_sched_abandon(void);
void lw_sched_ignore_this_thread(void);
/* Whether a thread of the run-time is still alive. Called by a thread of the program. */
bool lw_sched_has_own_threads(void);
/* Recorded switches in which a program thread lost its CPU. */
uint64_t lw_sched_switches(void);
/* Approximate cost of recording one switch, in nanoseconds. */
uint64_t lw_sched_cost(void);
/* Stops recording switches. */
void lw_sched_mute(void);
/* Number that scheduler events gave to a thread without a record. The thread takes over the
 * number. */
bool lw_sched_number(pid_t tid, uint32_t *number);

/* ---- descriptors and messages (descriptors.c, proc.c, list.c, say.c) ------------------------- */

/* Gives the calling thread an empty table of file descriptors of its own; false if the system
 * forbids it. */
bool lw_descriptors_unshare(void);
/* Whether this thread has left the program's table. */
extern __thread bool lw_has_own_descriptors LW_INITIAL_EXEC;
/* Leaves the program's working directory, so that its file system can be unmounted. Containers may
 * forbid it. */
void lw_leave_working_directory(void);
/* Opens a file or folder about a thread for reading (proc.c); -1 if there is none. */
int lw_open_of_thread(pid_t tid, const char *name);
/* Calls `each` for all names in an opened folder. */
void lw_list(int folder, void (*each)(const char *name, void *data), void *data);

/* Remembers the file behind standard error when the process begins. */
void lw_say_begin(void);
/* Prints a line to standard error, unless the program has replaced that descriptor. For any
 * thread. */
void lw_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the message that the control thread could not print. For a thread of the program. */
void lw_say_unsaid(void);

/* ---- session (session.c, control.c) ---------------------------------------------------------- */

enum lw_phase { LW_OFF, LW_ON, LW_ENDING };
extern _Atomic int lw_phase;
extern enum lw_engine lw_engine;

/* Start and stop of a recording, by the control thread only. The start returns NULL or an error
 * message. */
const char *lw_session_start(bool child, char *error, size_t room);
void lw_session_stop(int reason);

/* Creates the control thread. If recording begins at once, waits until it has begun. */
void lw_control_start(bool child);
/* Asks the control thread to stop everything. Waits until the trace is complete, or for two
 * seconds. */
void lw_control_finish(void);
/* Like `lw_control_finish`, for good: all threads of the run-time end, and the run-time makes no
 * more system calls.
 *
 * Called by a thread of the program. */
void lw_control_leave(void);
bool lw_control_exists(void);
/* Whether the control thread exists but is not ready yet: it neither records nor waits for
 * commands. */
bool lw_control_is_beginning(void);
/* In a forked child: forgets the control thread, which does not exist there. Clients of the socket
 * mean the parent. */
void lw_control_abandon(void);
/* CPU clock of the control thread. */
clockid_t lw_control_clock(void);
/* Creates a thread of the run-time. It is not recorded and blocks all signals. */
bool lw_helper_create(const char *name, void *(*run)(void *));
/* Set while this thread creates a thread of the run-time; the shim reads it. */
extern __thread bool lw_making_helper LW_INITIAL_EXEC;

/* Number of recordings begun so far. State that the shim kept from an earlier recording is
 * stale. */
extern _Atomic uint32_t lw_session;

/* At the end of the process (init.c). */
void lw_finish_process(void);
/* Whether this is the process prepared for recording, and not a child of vfork that shares its
 * memory. */
bool lw_is_recorded_process(void);
void lw_forget_process(void);

/* Whether the system-call filters in place allow recording (filters.c). */
bool lw_filters_allow(void);
/* Prepares to intercept filters that the program installs later. Called before the control thread
 * begins. Part of the shim. */
__attribute__((weak, visibility("default"))) void lw_filters_begin(void);

#pragma GCC visibility pop
