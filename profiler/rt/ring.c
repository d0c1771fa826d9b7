/* Memory of the threads' rings.
 *
 * A ring begins small, so that it stays in the core's caches. It grows while the clock thread can't
 * empty it fast enough. That happens in a burst, such as the return from a deep recursion, or on a
 * busy machine. The ring shrinks again once it is nearly empty. */
#include "rt.h"

#include <errno.h>
#include <sys/mman.h>

/* Initial entries of a ring: 256 KiB, which last for 8 ms at a million events per second. */
#define LEAST 8192u
/* Largest sum of the bytes of all rings that have grown. */
#define GROWN_MOST (512u << 20)
/* Bytes in front of the entries, a page of its own. */
#define FRONT 4096u

static _Atomic uint64_t grown;

static size_t bytes_of(uint64_t entries) { return FRONT + entries * sizeof(struct lw_event); }

static uint64_t least(void) { return lw_config.ring < LEAST ? lw_config.ring : LEAST; }

static struct lw_ring *map(uint64_t entries, uint64_t from) {
    void *memory = mmap(NULL, bytes_of(entries), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    struct lw_ring *ring = memory;
    ring->from = from;
    ring->mask = entries - 1;
    ring->entries = (struct lw_event *)((char *)memory + FRONT);
    return ring;
}

static void give_back(struct lw_ring *ring) {
    uint64_t entries = ring->mask + 1;
    if (entries > LEAST)
        atomic_fetch_sub_explicit(&grown, bytes_of(entries), memory_order_relaxed);
    munmap(ring, bytes_of(entries));
}

/* Maps a ring of `entries` entries, in which the producer goes on. False if there is no memory for
 * it. */
static bool move_to(struct lw_thread *self, uint64_t entries, uint64_t head) {
    size_t bytes = entries > LEAST ? bytes_of(entries) : 0;
    if (atomic_fetch_add_explicit(&grown, bytes, memory_order_relaxed) + bytes > GROWN_MOST) {
        atomic_fetch_sub_explicit(&grown, bytes, memory_order_relaxed);
        return false;
    }
    int error = errno;
    struct lw_ring *ring = map(entries, head);
    errno = error;
    if (!ring) {
        atomic_fetch_sub_explicit(&grown, bytes, memory_order_relaxed);
        return false;
    }
    /* Publish the ring before the head that counts an entry in it. */
    atomic_store_explicit(&self->writing->next, ring, memory_order_release);
    self->writing = ring;
    self->entries = ring->entries;
    self->mask = ring->mask;
    self->tail_seen = head;
    return true;
}

/* LW_PRESERVE: the slow path of instrumented functions calls this function. */
LW_PRESERVE bool lw_ring_make_room(struct lw_thread *self, uint64_t head) {
    struct lw_ring *ring = self->writing;
    uint64_t tail = atomic_load_explicit(&self->tail, memory_order_acquire);
    /* Entries in earlier rings take no room in this one. */
    self->tail_seen = tail > ring->from ? tail : ring->from;
    uint64_t entries = ring->mask + 1, used = head - self->tail_seen;
    if (used < entries) {
        if (entries > least() && tail >= ring->from && used < entries / 64)
            move_to(self, least(), head);
        return true;
    }
    return entries < lw_config.ring && move_to(self, entries * 2, head);
}

struct lw_event *lw_ring_entry(struct lw_thread *thread, uint64_t tail) {
    struct lw_ring *ring = thread->reading, *next;
    while ((next = atomic_load_explicit(&ring->next, memory_order_acquire)) && tail >= next->from) {
        thread->reading = next;
        give_back(ring);
        ring = next;
    }
    return &ring->entries[tail & ring->mask];
}

void lw_ring_discard(struct lw_thread *thread) {
    uint64_t head = atomic_load(&thread->head);
    lw_ring_entry(thread, head);
    atomic_store(&thread->tail, head);
}

bool lw_ring_begin(struct lw_thread *thread) {
    struct lw_ring *ring = map(least(), 0);
    if (!ring)
        return false;
    thread->writing = thread->reading = ring;
    thread->entries = ring->entries;
    thread->mask = ring->mask;
    return true;
}
