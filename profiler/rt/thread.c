/* Records of the program's threads, with their rings. A thread creates its record with its first
 * event, gives it back when it ends, and a later thread reuses it. */
#include "rt.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct lw_thread *lw_self LW_INITIAL_EXEC;
LW_EXPORT __thread struct lw_shadow lw_shadow;

struct lw_thread *_Atomic lw_threads[LW_MAX_THREADS];
_Atomic uint32_t lw_thread_slots;
_Atomic uint64_t lw_threads_refused;

static _Atomic uint32_t numbers;
static atomic_flag registry = ATOMIC_FLAG_INIT;
static pthread_key_t at_exit;
static bool have_key;

struct lw_thread *lw_thread_at(uint32_t slot) { return atomic_load_explicit(&lw_threads[slot], memory_order_acquire); }

uint32_t lw_thread_next_number(void) { return atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed); }

/* Runs in the ending thread. Later events of the thread (in other destructors) are not recorded. */
static void on_thread_exit(void *value) {
    struct lw_thread *thread = value;
    lw_self = LW_NOBODY;
    LW_POKE(lw_shadow.limit, 0);
    lw_lock(&thread->shadow_lock);
    thread->shadow = NULL;
    lw_unlock(&thread->shadow_lock);
    /* While nothing records, no clock thread would drain this record, so free it here. A filter may
     * then forbid system calls. */
    bool idle = atomic_load(&lw_phase) == LW_OFF;
    char name[16] = "";
    if (!idle)
        prctl(PR_GET_NAME, name);
    memcpy(thread->name, name, sizeof name);
    atomic_store_explicit(&thread->ended, lw_now(), memory_order_relaxed);
    atomic_store_explicit(&thread->life, idle ? LW_FREE : LW_EXITED, memory_order_release);
}

void lw_threads_discard(void) {
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct lw_thread *thread = lw_thread_at(slot);
        lw_ring_discard(thread);
        if (atomic_load(&thread->life) == LW_EXITED)
            atomic_store(&thread->life, LW_FREE);
    }
}

void lw_thread_setup(void) { have_key = pthread_key_create(&at_exit, on_thread_exit) == 0; }

static void *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Finds a free record, or creates one. The caller holds the registry's lock. */
static struct lw_thread *find_free(void) {
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_relaxed);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct lw_thread *thread = lw_thread_at(slot);
        if (atomic_load_explicit(&thread->life, memory_order_acquire) == LW_FREE)
            return thread;
    }
    if (slots == LW_MAX_THREADS)
        return NULL;
    struct lw_thread *thread = map(sizeof *thread);
    if (!thread || !lw_ring_begin(thread)) {
        if (thread)
            munmap(thread, sizeof *thread);
        return NULL;
    }
    atomic_store_explicit(&lw_threads[slots], thread, memory_order_release);
    atomic_store_explicit(&lw_thread_slots, slots + 1, memory_order_release);
    return thread;
}

/* Assigns a free record to this thread. The caller holds the registry's lock. */
static void take(struct lw_thread *thread) {
    /* The ring continues at its previous thread's position: the clock thread may be reading it. */
    uint64_t tail = atomic_load_explicit(&thread->tail, memory_order_acquire);
    thread->tail_seen = tail > thread->writing->from ? tail : thread->writing->from;
    thread->busy = false;
    for (int topic = 0; topic < LW_TOPICS; topic++) {
        atomic_store_explicit(&thread->lost[topic], 0, memory_order_relaxed);
        thread->lost_told[topic] = 0;
    }
    thread->tid = (pid_t)syscall(SYS_gettid);
    /* Scheduler events may have numbered this thread already. */
    if (!lw_sched_number(thread->tid, &thread->number))
        thread->number = lw_thread_next_number();
    thread->started = lw_now();
    atomic_store_explicit(&thread->ended, 0, memory_order_relaxed);
    thread->name[0] = '\0';
    thread->announced = 0;
    thread->shadow = NULL;
    lw_unlock(&thread->shadow_lock);
    atomic_store_explicit(&thread->life, LW_LIVE, memory_order_release);
}

struct lw_thread *lw_thread_make(void) {
    if (!have_key)
        return NULL;
    /* A signal handler may also come here while this thread holds the lock; it must not create a
     * record. */
    lw_self = LW_NOBODY;
    lw_lock(&registry);
    struct lw_thread *thread = find_free();
    if (thread)
        take(thread);
    lw_unlock(&registry);
    if (!thread) {
        atomic_fetch_add_explicit(&lw_threads_refused, 1, memory_order_relaxed);
        return NULL;
    }
    pthread_setspecific(at_exit, thread);
    lw_self = thread;
    return thread;
}

void lw_thread_begin(void) {
    struct lw_thread *self = lw_thread_self();
    if (!self || lw_engine != LW_ENGINE_SCAN || self->shadow || !lw_scan_prepare(self))
        return;
    lw_lock(&self->shadow_lock);
    self->shadow = &lw_shadow;
    lw_unlock(&self->shadow_lock);
    if (atomic_load(&lw_recording))
        LW_POKE(lw_shadow.limit, LW_SHADOW_SLOTS);
}

void lw_shadows_enable(bool enable) {
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_acquire);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct lw_thread *thread = lw_thread_at(slot);
        lw_lock(&thread->shadow_lock);
        if (thread->shadow) {
            if (enable && LW_PEEK(thread->shadow->limit) == 0)
                lw_scan_reset(thread, thread->shadow);
            LW_POKE(thread->shadow->limit, enable ? LW_SHADOW_SLOTS : 0);
        }
        lw_unlock(&thread->shadow_lock);
    }
}

void lw_threads_forget(void) {
    uint32_t slots = atomic_load_explicit(&lw_thread_slots, memory_order_relaxed);
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct lw_thread *thread = lw_thread_at(slot);
        thread->block = NULL;
        thread->shadow = NULL;
        lw_ring_discard(thread);
        lw_unlock(&thread->shadow_lock);
        atomic_store_explicit(&thread->life, LW_FREE, memory_order_relaxed);
    }
    atomic_store_explicit(&numbers, 0, memory_order_relaxed);
    lw_unlock(&registry);
    if (lw_self != LW_NOBODY)
        lw_self = NULL;
    LW_POKE(lw_shadow.limit, 0);
    if (have_key)
        pthread_setspecific(at_exit, NULL);
}
