/* The trace's files: segments with their header, modules and threads, blocks one write each, rotation within the budget.
 * Only the control thread is here. */
#include "rt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLOCK_PAUSE 1000000000u
#define MODULE_PAUSE 20000000u
#define PACE_PAUSE 200000000u
#define PAYLOAD_ROOM 65536u

static char folder[4200];
static int file = -1;
static bool failed;
static uint32_t segment, oldest;
static uint64_t segment_bytes, total_bytes, events;
static uint32_t labels_written;
static uint64_t clock_next, modules_next, pace_next;
static uint8_t trace_id[16];
static uint64_t anchor, wall_anchor;
static enum lw_engine trace_engine;
static uint8_t scratch[16 + PAYLOAD_ROOM];

const char *lw_writer_folder(void) { return folder; }

/* ---- payloads -------------------------------------------------------------------------------------------------------- */

void lw_put_bytes(struct lw_payload *p, const void *bytes, size_t length) {
    if (length > p->room - p->length) {
        p->overflow = true;
        return;
    }
    memcpy(p->bytes + p->length, bytes, length);
    p->length += (uint32_t)length;
}
void lw_put_u8(struct lw_payload *p, uint8_t value) { lw_put_bytes(p, &value, 1); }
void lw_put_u64(struct lw_payload *p, uint64_t value) { lw_put_bytes(p, &value, 8); }
static void put_u32(struct lw_payload *p, uint32_t value) { lw_put_bytes(p, &value, 4); }
void lw_put_varint(struct lw_payload *p, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        lw_put_u8(p, (uint8_t)(value | 0x80));
    lw_put_u8(p, (uint8_t)value);
}
void lw_put_text(struct lw_payload *p, const char *text) {
    size_t length = strlen(text);
    if (length > 4096)
        length = 4096;
    lw_put_varint(p, length);
    lw_put_bytes(p, text, length);
}

static struct lw_payload payload(void) { return (struct lw_payload){.bytes = scratch + 16, .room = PAYLOAD_ROOM}; }

/* ---- blocks and segments ---------------------------------------------------------------------------------------------- */

static uint64_t wall_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void path_of(uint32_t number, char *into, size_t room) { snprintf(into, room, "%s/%08u.lwt", folder, number); }

static bool delete_oldest(void) {
    if (oldest >= segment)
        return false;
    char path[4300];
    struct stat about;
    path_of(oldest++, path, sizeof path);
    if (stat(path, &about) == 0)
        total_bytes -= (uint64_t)about.st_size < total_bytes ? (uint64_t)about.st_size : total_bytes;
    unlink(path);
    return true;
}

/* All of it or nothing: what was half written is cut off again. */
static bool write_whole(const uint8_t *bytes, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t n = write(file, bytes + done, length - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            /* A full disk: our own oldest segment makes room, if there is one. */
            if (n < 0 && errno == ENOSPC && delete_oldest())
                continue;
            int reason = errno;
            if (done > 0 && ftruncate(file, (off_t)segment_bytes) == 0)
                lseek(file, (off_t)segment_bytes, SEEK_SET);
            failed = true;
            lw_say("writing %s failed: %s; recording ends", folder, strerror(reason));
            return false;
        }
    }
    segment_bytes += length;
    total_bytes += length;
    return true;
}

/* A block whose payload is behind 16 free bytes at `start`. */
static bool write_block(int kind, uint8_t *start, uint32_t length) {
    static const uint8_t sync[4] = {0xA7, 0x4C, 0x57, 0x42};
    if (file < 0)
        return false;
    memcpy(start, sync, 4);
    start[4] = (uint8_t)kind;
    memset(start + 5, 0, 3);
    memcpy(start + 8, &length, 4);
    uint32_t crc = lw_crc32c(0, start + 4, 8);
    crc = lw_crc32c(crc, start + 16, length);
    memcpy(start + 12, &crc, 4);
    return write_whole(start, 16 + (size_t)length);
}

static void write_header(void) {
    static const uint8_t scale[8] = {0, 0, 0, 0, 1, 0, 0, 0}; /* 2^32: the clock counts nanoseconds */
    struct lw_payload p = payload();
    lw_put_bytes(&p, trace_id, sizeof trace_id);
    lw_put_bytes(&p, scale, sizeof scale);
    lw_put_u64(&p, anchor);
    lw_put_u64(&p, anchor);
    lw_put_u64(&p, wall_anchor);
    put_u32(&p, (uint32_t)getpid());
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
    char command[4096];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, command, sizeof command - 1) : 0;
    if (fd >= 0)
        close(fd);
    length = length > 0 ? length : 0;
    for (ssize_t i = 0; i < length; i++)
        if (command[i] == '\0')
            command[i] = ' ';
    while (length > 0 && command[length - 1] == ' ')
        length--;
    command[length] = '\0';
    lw_put_text(&p, command);
    write_block(LW_BLOCK_HEADER, scratch, p.length);
}

static void write_clock(uint64_t now) {
    struct lw_payload p = payload();
    lw_put_u64(&p, now);
    lw_put_u64(&p, now);
    lw_put_u64(&p, wall_clock());
    write_block(LW_BLOCK_CLOCK, scratch, p.length);
    clock_next = now + CLOCK_PAUSE;
}

static void write_modules(void) {
    uint32_t from = 0;
    do {
        struct lw_payload p = payload();
        from = lw_modules_encode(&p, from);
        write_block(LW_BLOCK_MODULES, scratch, p.length);
    } while (from != 0);
}

static void read_name(struct lw_thread *thread) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)thread->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
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
    write_block(LW_BLOCK_THREADS, scratch, p.length);
    thread->announced = segment + 1;
}

void lw_writer_name_thread(uint32_t number, int tid) {
    struct lw_thread silent = {.number = number, .tid = tid, .life = LW_LIVE};
    write_thread(&silent);
}

/* All that live, for a reader that has this segment only. */
static void write_threads(void) {
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
    for (uint32_t slot = 0; slot < slots && !failed; slot++) {
        struct lw_thread *thread = lw_thread_at(slot);
        if (atomic_load_explicit(&thread->life, memory_order_acquire) == LW_LIVE)
            write_thread(thread);
    }
}

/* Labels that this segment does not have yet. */
static void write_labels(void) {
    for (;;) {
        struct lw_payload p = payload();
        uint32_t until = lw_labels_encode(&p, labels_written);
        if (until == labels_written || !write_block(LW_BLOCK_LABELS, scratch, p.length))
            return;
        labels_written = until;
    }
}

/* One block: all sums, and as many pauses as fit. */
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
    write_block(LW_BLOCK_PACE, scratch, p.length);
    return count == ROOM;
}

void lw_writer_pace(uint64_t now) {
    while (write_pace(now))
        ;
    pace_next = now + PACE_PAUSE;
}

static void write_end(int reason) {
    struct lw_payload p = payload();
    lw_put_u64(&p, lw_now());
    lw_put_u8(&p, (uint8_t)reason);
    lw_put_u64(&p, events);
    lw_put_u64(&p, atomic_load(&lw_lost_total));
    write_block(LW_BLOCK_END, scratch, p.length);
}

void lw_writer_note(int level, int topic, const char *text) {
    struct lw_payload p = payload();
    lw_put_u64(&p, lw_now());
    lw_put_u8(&p, (uint8_t)level);
    lw_put_u8(&p, (uint8_t)topic);
    lw_put_text(&p, text);
    write_block(LW_BLOCK_NOTE, scratch, p.length);
}

static bool open_segment(void) {
    char path[4300];
    path_of(segment, path, sizeof path);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return false;
    uint8_t head[16] = {'L', 'E', 'E', 'W', 'T', 'R', 'C', '\n', 1};
    memcpy(head + 12, &segment, 4);
    segment_bytes = 0;
    if (!write_whole(head, sizeof head))
        return false;
    write_header();
    lw_modules_changed(lw_now());
    write_modules();
    write_threads();
    labels_written = 0;
    write_clock(lw_now());
    return !failed;
}

static void rotate(void) {
    write_end(3);
    close(file);
    file = -1;
    segment++;
    while (total_bytes + lw_config.segment > lw_config.disk && delete_oldest())
        ;
    if (!failed && !open_segment()) {
        failed = true;
        lw_say("no new segment in %s: %s; recording ends", folder, strerror(errno));
    }
}

/* ---- the trace ------------------------------------------------------------------------------------------------------------ */

/* `mkdir -p`. */
static bool make_folder(char *path) {
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = '\0';
            int done = mkdir(path, 0777);
            *at = '/';
            if (done != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
                return false;
        }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

bool lw_writer_begin(enum lw_engine engine, bool child, char *error, size_t room) {
    lw_config_folder(&lw_config, child, folder, sizeof folder);
    trace_engine = engine;
    if (!make_folder(folder)) {
        snprintf(error, room, "%s can't be made: %s", folder, strerror(errno));
        return false;
    }
    char first[4300];
    path_of(0, first, sizeof first);
    if (access(first, F_OK) == 0) {
        /* A second recording of one process gets a folder of its own; what is there is somebody's. */
        size_t length = strlen(folder);
        int n = 2;
        do {
            snprintf(folder + length, sizeof folder - length, ".%d", n++);
            path_of(0, first, sizeof first);
        } while (n < 10000 && access(first, F_OK) == 0);
        if (!make_folder(folder)) {
            snprintf(error, room, "%s can't be made: %s", folder, strerror(errno));
            return false;
        }
    }
    failed = false;
    segment = oldest = 0;
    total_bytes = events = 0;
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
    snprintf(error, room, "%s can't be written: %s", folder, strerror(errno));
    if (file >= 0)
        close(file);
    file = -1;
    return false;
}

void lw_writer_write_events(struct lw_block *block) {
    if (file < 0 || failed)
        return;
    if (segment_bytes + block->length > lw_config.segment)
        rotate();
    write_labels();
    if (write_block(LW_BLOCK_EVENTS, block->bytes, block->length - 16))
        events += block->count;
}

bool lw_writer_step(void) {
    uint64_t now = lw_now();
    if (!failed && file >= 0 && now >= modules_next) {
        if (lw_modules_changed(now))
            write_modules();
        modules_next = now + MODULE_PAUSE;
    }
    for (struct lw_block *block; (block = lw_block_next_full()) != NULL;) {
        struct lw_thread *thread = block->thread;
        if (!failed && file >= 0 && block->count > 0) {
            lw_writer_write_events(block);
            if (thread->announced != segment + 1)
                write_thread(thread);
        }
        if (block->last) {
            if (!failed && file >= 0)
                write_thread(thread);
            atomic_store_explicit(&thread->life, LW_FREE, memory_order_release);
        }
        lw_block_give_back(block);
    }
    if (!failed && file >= 0 && now >= clock_next)
        write_clock(now);
    if (!failed && file >= 0 && now >= pace_next)
        lw_writer_pace(now);
    return !failed;
}

void lw_writer_end(int reason) {
    if (file < 0)
        return;
    write_threads();
    if (lw_modules_changed(lw_now()))
        write_modules();
    write_end(failed ? 4 : reason);
    close(file);
    file = -1;
}

/* In a forked child: the file is the parent's. */
void lw_writer_abandon(void) {
    if (file >= 0)
        close(file);
    file = -1;
}
