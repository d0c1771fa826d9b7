/* Contents of a trace: its blocks except the events' encoding. file.c writes the files.
 *
 * Each segment begins with its header, modules and threads, for a reader that has only this one.
 * Then events and other blocks follow. Only the control thread runs this code. */
#include "file.h"
#include "pace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define CLOCK_PAUSE 1000000000u
#define MODULE_PAUSE 20000000u
#define PACE_PAUSE 200000000u
#define PAYLOAD_ROOM 65536u

static uint64_t events;
static uint32_t labels_written, stacks_written;
static uint64_t clock_next, modules_next, pace_next;
static uint8_t trace_id[16];
static uint64_t anchor, wall_anchor;
static enum lw_engine trace_engine;
static uint8_t scratch[16 + PAYLOAD_ROOM];
/* Command line as in the last header. */
static char command[4096];
/* Boot id of the host; empty if unknown. Recordings with the same one have the same clock. */
static char boot[40];

static struct lw_payload payload(void) { return (struct lw_payload){.bytes = scratch + 16, .room = PAYLOAD_ROOM}; }

/* ---- blocks ---------------------------------------------------------------------------------- */

static uint64_t wall_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void write_header(void) {
    /* 2^32: the clock counts nanoseconds */
    static const uint8_t scale[8] = {0, 0, 0, 0, 1, 0, 0, 0};
    struct lw_payload p = payload();
    lw_put_bytes(&p, trace_id, sizeof trace_id);
    lw_put_bytes(&p, scale, sizeof scale);
    lw_put_u64(&p, anchor);
    lw_put_u64(&p, anchor);
    lw_put_u64(&p, wall_anchor);
    lw_put_u32(&p, (uint32_t)getpid());
    lw_put_u8(&p, trace_engine == LW_ENGINE_TICK ? 1 : trace_engine == LW_ENGINE_SCAN ? 3 : 0);
    lw_put_varint(&p, lw_config.threshold);
    lw_put_varint(&p, lw_config.lock_threshold);
    uint64_t scan_mean = atomic_load(&lw_scan_mean) >> 8;
    lw_put_varint(&p, lw_config.tick > 0 ? lw_config.tick : scan_mean > 0 ? scan_mean : 100);
#if defined(__aarch64__)
    lw_put_text(&p, "aarch64");
#else
    lw_put_text(&p, "x86_64");
#endif
    lw_put_text(&p, "leeward-rt 0.1");
    lw_put_text(&p, command);
    lw_put_text(&p, boot);
    lw_file_write_block(LW_BLOCK_HEADER, scratch, p.length);
}

/* Reads the current command line: a server may have changed the title of its process. Returns
 * whether it differs from the last one. */
static bool read_command(void) {
    static char now[sizeof command];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, now, sizeof now - 1) : 0;
    if (fd >= 0)
        close(fd);
    length = length > 0 ? length : 0;
    for (ssize_t i = 0; i < length; i++)
        if (now[i] == '\0')
            now[i] = ' ';
    while (length > 0 && now[length - 1] == ' ')
        length--;
    now[length] = '\0';
    /* A command line that can't be read any more is no change. */
    if (length == 0 || strcmp(now, command) == 0)
        return false;
    strcpy(command, now);
    return true;
}

static void read_boot(void) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, boot, sizeof boot - 1) : 0;
    if (fd >= 0)
        close(fd);
    boot[length > 0 ? length : 0] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
}

/* Writes another header if the command line has changed: a reader takes the last one. */
static void follow_command(void) {
    if (read_command())
        write_header();
}

static void write_clock(uint64_t now) {
    struct lw_payload p = payload();
    lw_put_u64(&p, now);
    lw_put_u64(&p, now);
    lw_put_u64(&p, wall_clock());
    lw_file_write_block(LW_BLOCK_CLOCK, scratch, p.length);
    clock_next = now + CLOCK_PAUSE;
}

static void write_modules(void) {
    uint32_t from = 0;
    do {
        struct lw_payload p = payload();
        from = lw_modules_encode(&p, from);
        lw_file_write_block(LW_BLOCK_MODULES, scratch, p.length);
    } while (from != 0);
}

static void read_name(struct lw_thread *thread) {
    int fd = lw_open_of_thread(thread->tid, "comm");
    if (fd < 0)
        return;
    ssize_t length = read(fd, thread->name, sizeof thread->name - 1);
    close(fd);
    thread->name[length > 0 ? length - 1 : 0] = '\0';
}

static void write_thread(struct lw_thread *thread) {
    if (atomic_load_explicit(&thread->life, memory_order_acquire) == LW_LIVE)
        read_name(thread);
    struct lw_payload p = payload();
    lw_put_varint(&p, 1);
    lw_put_varint(&p, thread->number);
    lw_put_varint(&p, (uint64_t)thread->tid);
    lw_put_u64(&p, thread->started);
    lw_put_u64(&p, atomic_load(&thread->ended));
    lw_put_text(&p, thread->name);
    lw_file_write_block(LW_BLOCK_THREADS, scratch, p.length);
    thread->announced = lw_file_segment() + 1;
}

void lw_writer_name_thread(uint32_t number, int tid) {
    struct lw_thread silent = {.number = number, .tid = tid, .life = LW_LIVE};
    write_thread(&silent);
}

/* Writes all live threads, for a reader that has only this segment. */
static void write_threads(void) {
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
    for (uint32_t slot = 0; slot < slots && !lw_file_has_failed(); slot++) {
        struct lw_thread *thread = lw_thread_at(slot);
        if (atomic_load_explicit(&thread->life, memory_order_acquire) == LW_LIVE)
            write_thread(thread);
    }
}

/* Writes the entries of a table that this segment does not have yet. */
static void write_table(int block, uint32_t (*encode)(struct lw_payload *, uint32_t), uint32_t *written) {
    for (;;) {
        struct lw_payload p = payload();
        uint32_t until = encode(&p, *written);
        if (until == *written || !lw_file_write_block(block, scratch, p.length))
            return;
        *written = until;
    }
}

static void write_tables(void) {
    write_table(LW_BLOCK_LABELS, lw_labels_encode, &labels_written);
    write_table(LW_BLOCK_STACKS, lw_stacks_encode, &stacks_written);
}

/* Writes one block with all sums and as many stalls as fit. Returns whether more stalls may be
 * left. */
static bool write_pace(uint64_t now) {
    /* Each takes at most 28 bytes. */
    enum { ROOM = PAYLOAD_ROOM / 32 };
    static struct lw_still list[ROOM];
    uint32_t count = 0;
    while (count < ROOM && lw_pace_take(&list[count]))
        count++;
    struct lw_payload p = payload();
    lw_put_u64(&p, now);
    lw_put_varint(&p, atomic_load(&lw_pace.stood));
    lw_put_varint(&p, atomic_load(&lw_pace.coarse));
    lw_put_varint(&p, atomic_load(&lw_pace.coarse_tick));
    lw_put_varint(&p, atomic_load(&lw_pace.used));
    lw_put_varint(&p, atomic_load(&lw_pace.tick));
    lw_put_varint(&p, count);
    for (uint32_t i = 0; i < count; i++) {
        lw_put_u64(&p, list[i].start);
        lw_put_varint(&p, list[i].length);
        lw_put_varint(&p, list[i].used);
    }
    lw_file_write_block(LW_BLOCK_PACE, scratch, p.length);
    return count == ROOM;
}

void lw_writer_pace(uint64_t now) {
    while (write_pace(now))
        ;
    struct lw_payload p = payload();
    if (lw_budget_encode(&p, now))
        lw_file_write_block(LW_BLOCK_SHARE, scratch, p.length);
    pace_next = now + PACE_PAUSE;
}

static bool write_end(int reason) {
    struct lw_payload p = payload();
    lw_put_u64(&p, lw_now());
    lw_put_u8(&p, (uint8_t)reason);
    lw_put_u64(&p, events);
    lw_put_u64(&p, atomic_load(&lw_lost_total));
    return lw_file_write_block(LW_BLOCK_END, scratch, p.length);
}

void lw_writer_note(int level, int topic, const char *text) {
    struct lw_payload p = payload();
    lw_put_u64(&p, lw_now());
    lw_put_u8(&p, (uint8_t)level);
    lw_put_u8(&p, (uint8_t)topic);
    lw_put_text(&p, text);
    lw_file_write_block(LW_BLOCK_NOTE, scratch, p.length);
}

/* ---- segments -------------------------------------------------------------------------------- */

static bool open_segment(void) {
    if (!lw_file_open_segment())
        return false;
    read_command();
    write_header();
    lw_modules_changed(lw_now());
    write_modules();
    write_threads();
    labels_written = stacks_written = 0;
    write_clock(lw_now());
    return !lw_file_has_failed();
}

static void rotate(void) {
    /* Then the file stays open for the end of the recording. */
    if (!write_end(LW_END_SEGMENT))
        return;
    lw_file_close_segment();
    lw_file_make_room();
    if (!lw_file_has_failed() && !open_segment())
        lw_file_fail();
}

/* ---- the trace ------------------------------------------------------------------------------- */

bool lw_writer_begin(enum lw_engine engine, bool child, char *error, size_t room) {
    trace_engine = engine;
    if (!lw_file_begin(child, error, room))
        return false;
    events = 0;
    command[0] = '\0';
    read_boot();
    atomic_store(&lw_lost_total, 0);
    modules_next = 0;
    lw_modules_reset();
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
    for (uint32_t slot = 0; slot < slots; slot++)
        lw_thread_at(slot)->announced = 0;
    if (getrandom(trace_id, sizeof trace_id, GRND_NONBLOCK) != sizeof trace_id) {
        uint64_t weak[2] = {lw_now(), (uint64_t)getpid()};
        memcpy(trace_id, weak, sizeof trace_id);
    }
    anchor = lw_now();
    wall_anchor = wall_clock();
    if (open_segment())
        return true;
    snprintf(error, room, "%s can't be written: %s", lw_writer_folder(), strerror(errno));
    lw_file_close();
    return false;
}

void lw_writer_write_events(struct lw_block *block) {
    if (!lw_file_is_open())
        return;
    if (!lw_file_has_room(block->length))
        rotate();
    if (!lw_file_is_open())
        return;
    write_tables();
    if (lw_file_write_block(LW_BLOCK_EVENTS, block->bytes, block->length - 16))
        events += block->count;
}

bool lw_writer_step(void) {
    uint64_t now = lw_now();
    if (lw_file_is_open() && now >= modules_next) {
        if (lw_modules_changed(now))
            write_modules();
        modules_next = now + MODULE_PAUSE;
    }
    for (struct lw_block *block; (block = lw_block_next_full()) != NULL;) {
        struct lw_thread *thread = block->thread;
        if (lw_file_is_open() && block->count > 0) {
            lw_writer_write_events(block);
            if (thread->announced != lw_file_segment() + 1)
                write_thread(thread);
        }
        if (block->last) {
            if (lw_file_is_open())
                write_thread(thread);
            atomic_store_explicit(&thread->life, LW_FREE, memory_order_release);
        }
        lw_block_give_back(block);
    }
    if (lw_file_is_open() && now >= clock_next) {
        write_clock(now);
        follow_command();
    }
    if (lw_file_is_open() && now >= pace_next)
        lw_writer_pace(now);
    return !lw_file_has_failed();
}

void lw_writer_end(int reason) {
    if (!lw_file_is_open() && !lw_file_has_failed())
        return;
    write_threads();
    if (lw_modules_changed(lw_now()))
        write_modules();
    follow_command();
    if (!write_end(lw_file_has_failed() ? LW_END_FAILED : reason)) {
        lw_file_drop_last_block();
        write_end(LW_END_FAILED);
    }
    lw_file_close();
}

void lw_writer_abandon(void) { lw_file_abandon(); }
