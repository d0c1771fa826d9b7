/* Scheduler events of the program's threads: switch records of perf_event_open, on the trace's
 * clock.
 *
 * There are two ways:
 * - per CPU, where only the program's switches are kept. This costs a switch less than half as much
 *   (0.8 us instead of 2 us, where it was measured). It needs rights (perf_event_paranoid at most
 *   0, or CAP_PERFMON), and every switch on the machine pays.
 * - per thread. For one's own process this needs no rights where perf_event_paranoid is at most 2.
 *
 * Containers often forbid the call altogether. */
#include "rt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_CPUS 512
#define MAX_EVENTS 4096
/* Pages of one CPU's buffer: 2 MiB if that is allowed and CPUs are few. It holds some 40,000
 * switches between two reads, which are far apart on a busy machine. */
#define PAGES_LEAST 16u
#define PAGES_MOST 512u
#define PAGES_IN_ALL 8192u
#define MAX_TIDS 8192u
#define BATCH 4096u
/* Cost of recording a switch for the switched thread, in nanoseconds: per CPU, and per thread. */
#define WIDE_COST 800u
#define OWN_COST 2000u
/* perf_event_attr.inherit_thread, from Linux 5.13 on, which older headers lack: threads inherit an
 * event, forked children don't. */
#define FLAGS_OFFSET (offsetof(struct perf_event_attr, read_format) + sizeof(uint64_t))
#define INHERIT_THREAD (1ull << 35)

/* Buffer of one CPU; the events of all threads on that CPU write into it. */
struct source {
    int fd;
    struct perf_event_mmap_page *page;
};

static struct source sources[MAX_CPUS];
static int source_count;
static uint64_t pages;
static uint64_t switches;
static bool wide;
/* Before Linux 5.13 forked children inherit events, too. Their switches are dropped here, but take
 * room in the buffers. */
static bool children_inherit, children_told;
static int descriptors[MAX_EVENTS];
static int descriptor_count;
static size_t page_size;
/* Id of this process, kept because a system call per record would cost more than reading the
 * record. */
static pid_t process;
/* Latest threads of the run-time: each recording has a new clock thread. */
#define IGNORED 16
static pid_t ignored[IGNORED];
static int ignored_count;

/* Numbers of threads that have no record, because they have written no event yet.
 *
 * Open addressing; one word per thread: kernel's id << 32 | number + 1, or 0 while empty. So a
 * thread can take its own number while the control thread reads. The slot then keeps the id, with
 * number 0. */
static _Atomic uint64_t known[MAX_TIDS];

/* Events of one read, to be sorted by thread. */
static struct switched {
    pid_t tid;
    uint32_t order;
    struct lw_event event;
} batch[BATCH];
static uint32_t batch_count;
static struct lw_block block;

static uint32_t number_of(pid_t tid) {
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct lw_thread *thread = lw_thread_at(slot);
        int life = atomic_load_explicit(&thread->life, memory_order_acquire);
        if (life != LW_FREE && thread->tid == tid)
            return thread->number;
    }
    return UINT32_MAX;
}

static uint32_t place_of(pid_t tid, uint32_t probe) { return ((uint32_t)tid * 2654435761u + probe) % MAX_TIDS; }

/* Number of a thread that has no record. `*fresh`: the number is new. */
static uint32_t number_of_silent(pid_t tid, bool *fresh) {
    *fresh = false;
    for (uint32_t probe = 0; probe < 64; probe++) {
        _Atomic uint64_t *place = &known[place_of(tid, probe)];
        uint64_t word = atomic_load(place);
        if (word >> 32 == (uint64_t)tid && (uint32_t)word != 0)
            return (uint32_t)word - 1;
        if (word == 0 || word >> 32 == (uint64_t)tid) {
            uint32_t number = lw_thread_next_number();
            atomic_store(place, (uint64_t)tid << 32 | (number + 1));
            *fresh = true;
            return number;
        }
    }
    return UINT32_MAX;
}

bool lw_sched_number(pid_t tid, uint32_t *number) {
    for (uint32_t probe = 0; probe < 64; probe++) {
        _Atomic uint64_t *place = &known[place_of(tid, probe)];
        uint64_t word = atomic_load(place);
        if (word == 0)
            return false;
        if (word >> 32 == (uint64_t)tid) {
            if ((uint32_t)word == 0)
                return false;
            *number = (uint32_t)word - 1;
            atomic_store(place, (uint64_t)tid << 32);
            return true;
        }
    }
    return false;
}

static int compare(const void *a, const void *b) {
    const struct switched *one = a, *other = b;
    if (one->tid != other->tid)
        return one->tid < other->tid ? -1 : 1;
    if (one->event.time != other->event.time)
        return one->event.time < other->event.time ? -1 : 1;
    return one->order < other->order ? -1 : one->order > other->order;
}

static void write_batch(uint64_t now) {
    qsort(batch, batch_count, sizeof *batch, compare);
    for (uint32_t i = 0; i < batch_count;) {
        pid_t tid = batch[i].tid;
        uint32_t number = number_of(tid);
        if (number == UINT32_MAX) {
            bool fresh;
            number = number_of_silent(tid, &fresh);
            if (fresh)
                lw_writer_name_thread(number, tid);
        }
        if (number == UINT32_MAX) { /* more silent threads than the table holds */
            for (; i < batch_count && batch[i].tid == tid; i++)
                atomic_fetch_add(&lw_lost_total, 1);
            continue;
        }
        lw_block_open(&block, number, now);
        for (; i < batch_count && batch[i].tid == tid; i++) {
            if (lw_block_is_full(&block)) {
                lw_block_close(&block);
                lw_writer_write_events(&block);
                lw_block_open(&block, number, now);
            }
            lw_block_append(&block, &batch[i].event);
        }
        lw_block_close(&block);
        lw_writer_write_events(&block);
    }
    batch_count = 0;
}

static bool is_ignored(pid_t tid) {
    for (int i = 0; i < ignored_count && i < IGNORED; i++)
        if (ignored[i] == tid)
            return true;
    return false;
}

void lw_sched_ignore_this_thread(void) {
    ignored[ignored_count++ % IGNORED] = (pid_t)syscall(SYS_gettid);
}

bool lw_sched_has_own_threads(void) {
    for (int i = 0; i < ignored_count && i < IGNORED; i++)
        if (syscall(SYS_tgkill, getpid(), ignored[i], 0) == 0)
            return true;
    return false;
}

/* Layout of PERF_RECORD_SWITCH with sample_id_all: header, then tid, time and cpu as in
 * `sample_type`. */
struct switch_record {
    struct perf_event_header header;
    uint32_t pid, tid;
    uint64_t time;
    uint32_t cpu, unused;
};
/* The same per CPU: the next or previous thread is in between. */
struct wide_record {
    struct perf_event_header header;
    uint32_t other_pid, other_tid;
    uint32_t pid, tid;
    uint64_t time;
    uint32_t cpu, unused;
};
struct lost_record {
    struct perf_event_header header;
    uint64_t id, lost;
    uint32_t pid, tid;
    uint64_t time;
    uint32_t cpu, unused;
};

static void add(pid_t tid, struct lw_event event, uint64_t now) {
    if (batch_count == BATCH)
        write_batch(now);
    batch[batch_count] = (struct switched){.tid = tid, .order = batch_count, .event = event};
    batch_count++;
}

static void read_record(const uint8_t *bytes, uint64_t now) {
    struct perf_event_header header;
    memcpy(&header, bytes, sizeof header);
    bool of_cpu = header.type == PERF_RECORD_SWITCH_CPU_WIDE && header.size >= sizeof(struct wide_record);
    if (of_cpu || (header.type == PERF_RECORD_SWITCH && header.size >= sizeof(struct switch_record))) {
        struct switch_record record;
        memcpy(&record, bytes + (of_cpu ? sizeof(struct wide_record) - sizeof record : 0), sizeof record);
        /* Skip switches of the idle task, and the last one of a thread that has no id any more. */
        if ((pid_t)record.tid <= 0 || (pid_t)record.pid != process || is_ignored((pid_t)record.tid))
            return;
        bool out = header.misc & PERF_RECORD_MISC_SWITCH_OUT;
        switches += out;
        bool runnable = out && header.misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        struct lw_event event = {
            .first = out ? LW_SWITCHED_OUT | (runnable ? LW_MARK_RUNNABLE : 0) : LW_SWITCHED_IN,
            .extra = record.cpu,
            .time = record.time,
        };
        add((pid_t)record.tid, event, now);
    } else if (header.type == PERF_RECORD_LOST && header.size >= sizeof(struct lost_record)) {
        struct lost_record record;
        memcpy(&record, bytes, sizeof record);
        struct lw_event event = {.first = LW_LOST, .second = LW_SCHED, .extra = record.lost, .time = record.time};
        atomic_fetch_add(&lw_lost_total, record.lost);
        add(process, event, now);
        if (children_inherit && !children_told) {
            children_told = true;
            lw_writer_note(1, LW_NOTE_SCHED,
                           "scheduler events that were lost may be those of forked children: before Linux 5.13 they share the buffers");
        }
    }
}

static void read_source(struct source *source, uint64_t now) {
    uint64_t size = pages * page_size;
    const uint8_t *data = (const uint8_t *)source->page + page_size;
    uint64_t head = __atomic_load_n(&source->page->data_head, __ATOMIC_ACQUIRE);
    uint64_t tail = source->page->data_tail;
    while (tail < head) {
        uint8_t record[256];
        struct perf_event_header header;
        /* Records are aligned to 8 bytes, so a header never wraps around; the rest may. */
        memcpy(&header, data + tail % size, sizeof header);
        if (header.size < sizeof header)
            break;
        uint64_t length = header.size < sizeof record ? header.size : sizeof record;
        uint64_t at = tail % size, front = size - at < length ? size - at : length;
        memcpy(record, data + at, front);
        memcpy(record + front, data, length - front);
        read_record(record, now);
        tail += header.size;
    }
    __atomic_store_n(&source->page->data_tail, tail, __ATOMIC_RELEASE);
}

void lw_sched_step(uint64_t now) {
    for (int i = 0; i < source_count; i++)
        if (sources[i].page)
            read_source(&sources[i], now);
    if (batch_count > 0)
        write_batch(now);
}

static void close_all(void) {
    for (int i = 0; i < source_count; i++)
        if (sources[i].page)
            munmap(sources[i].page, (pages + 1) * page_size);
    for (int i = 0; i < descriptor_count; i++)
        close(descriptors[i]);
    source_count = descriptor_count = 0;
}

uint64_t lw_sched_switches(void) { return switches; }

uint64_t lw_sched_cost(void) { return wide ? WIDE_COST : OWN_COST; }

void lw_sched_end(void) {
    lw_sched_step(lw_now());
    close_all();
}

void lw_sched_mute(void) { lw_sched_end(); }

/* A child has neither the descriptors nor the buffers, which a fork does not copy. The buffers'
 * addresses may be in use by others. */
void lw_sched_abandon(void) {
    source_count = descriptor_count = 0;
    ignored_count = 0;
    batch_count = 0;
}

static const char *explain(int error, char *reason, size_t room) {
    char level[16] = "unknown";
    int fd = open("/proc/sys/kernel/perf_event_paranoid", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, level, sizeof level - 1) : 0;
    if (fd >= 0)
        close(fd);
    if (length > 0)
        level[level[length - 1] == '\n' ? length - 1 : length] = '\0';
    snprintf(reason, room, "no scheduler events: %s (perf_event_paranoid is %s; containers often forbid perf_event_open)",
             strerror(error), level);
    return reason;
}

static int open_event(pid_t tid, int cpu, bool inherit) {
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_SW_DUMMY,
        .sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU,
        .sample_id_all = 1,
        .context_switch = 1,
        .inherit = inherit,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .use_clockid = 1,
        .clockid = CLOCK_MONOTONIC,
    };
    if (inherit && !children_inherit) {
        uint64_t flags;
        memcpy(&flags, (char *)&attr + FLAGS_OFFSET, sizeof flags);
        flags |= INHERIT_THREAD;
        memcpy((char *)&attr + FLAGS_OFFSET, &flags, sizeof flags);
    }
    return (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static bool is_mapped(void) {
    for (int i = 0; i < source_count; i++)
        if (sources[i].page)
            return true;
    return false;
}

/* Opens the switches on one CPU of one thread and the threads that it will create, or of all
 * threads (-1). False with errno. */
static bool open_source(pid_t tid, int cpu) {
    struct source *source = &sources[cpu];
    int fd = open_event(tid, cpu, tid != -1);
    if (fd < 0 && (errno == EINVAL || errno == E2BIG) && tid != -1 && !children_inherit) {
        children_inherit = true;
        fd = open_event(tid, cpu, true);
    }
    if (fd < 0)
        return false;
    descriptors[descriptor_count++] = fd;
    if (source->page)
        return ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, source->fd) == 0;
    void *page;
    /* Locked memory is limited. The first source finds out how much it may have; the others take as
     * much. */
    while ((page = mmap(NULL, (pages + 1) * page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
        if (pages == PAGES_LEAST || is_mapped())
            return false;
        pages /= 2;
    }
    *source = (struct source){.fd = fd, .page = page};
    return true;
}

struct tids {
    pid_t *ids;
    int count, room;
};

static void add_tid(const char *name, void *data) {
    struct tids *tids = data;
    int tid = atoi(name);
    if (tid > 0 && tids->count < tids->room)
        tids->ids[tids->count++] = (pid_t)tid;
}

/* Lists the existing threads; later ones inherit their events. */
static int list_threads(pid_t *ids, int room) {
    struct tids tids = {.ids = ids, .room = room};
    int folder = lw_open_of_thread((pid_t)syscall(SYS_gettid), "task");
    if (folder < 0)
        return 0;
    lw_list(folder, add_tid, &tids);
    close(folder);
    return tids.count;
}

/* Opens all switches on each CPU. False, with nothing open, if that is not allowed. */
static bool open_wide(void) {
    for (int cpu = 0; cpu < source_count; cpu++)
        if (!open_source(-1, cpu) && errno != ENODEV && errno != ENXIO) {
            int cpus = source_count;
            close_all();
            memset(sources, 0, sizeof sources);
            source_count = cpus;
            /* All buffers have one size. Events per thread use the smallest. */
            pages = PAGES_LEAST;
            return false;
        }
    return descriptor_count > 0;
}

const char *lw_sched_begin(char *reason, size_t room) {
    static pid_t tids[MAX_EVENTS];
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    process = getpid();
    for (uint32_t place = 0; place < MAX_TIDS; place++)
        atomic_store_explicit(&known[place], 0, memory_order_relaxed);
    memset(sources, 0, sizeof sources);
    batch_count = 0;
    wide = children_inherit = children_told = false;
    switches = 0;
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    source_count = (int)(cpus < MAX_CPUS ? cpus : MAX_CPUS);
    for (pages = PAGES_MOST; pages > PAGES_LEAST && pages * (uint64_t)source_count > PAGES_IN_ALL;)
        pages /= 2;
    if (!lw_config.sched_own && (wide = open_wide()))
        return NULL;
    int threads = list_threads(tids, MAX_EVENTS);
    if (threads == 0)
        return explain(errno, reason, room);
    for (int t = 0; t < threads; t++)
        for (int cpu = 0; cpu < source_count; cpu++) {
            if (is_ignored(tids[t]))
                continue;
            if (descriptor_count == MAX_EVENTS) {
                snprintf(reason, room, "scheduler events of some threads are missing: too many threads on too many CPUs");
                return reason;
            }
            /* Ignore a thread that has ended meanwhile, and a CPU that is off. */
            if (!open_source(tids[t], cpu) && errno != ESRCH && errno != ENODEV && errno != ENXIO) {
                int error = errno;
                close_all();
                return explain(error, reason, room);
            }
        }
    return NULL;
}
