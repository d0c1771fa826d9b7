/* pthread shim: intercepts the program's calls that lock, wait, unlock and create threads.
 *
 * While nothing records, each call only calls the real function. A hold is recorded after its
 * release, outside of the critical section, and only if the wait or the hold was long enough
 * (thesis §3.3.3). */
#include "rt.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HERE __builtin_return_address(0)
#define MAX_HELD 16u

/* Looks up the next definition of a symbol once. */
#define REAL(name, version)                                                                                                                   \
    static __typeof__(name) *_Atomic real_##name;                                                                                             \
    static __attribute__((noinline)) __typeof__(name) *find_##name(void) {                                                                    \
        __typeof__(name) *found = (__typeof__(name) *)lw_find(#name, version);                                                                \
        atomic_store_explicit(&real_##name, found, memory_order_relaxed);                                                                     \
        return found;                                                                                                                         \
    }                                                                                                                                         \
    static inline __typeof__(name) *get_##name(void) {                                                                                        \
        __typeof__(name) *known = atomic_load_explicit(&real_##name, memory_order_relaxed);                                                   \
        return LW_LIKELY(known != NULL) ? known : find_##name();                                                                              \
    }

/* Symbols of the sanitizers that have interceptors. */
extern char address_sanitizer __asm__("__asan_init") __attribute__((weak, visibility("default")));
extern char thread_sanitizer __asm__("__tsan_init") __attribute__((weak, visibility("default")));

static void *lw_find(const char *name, const char *version) {
    /* A sanitizer's interceptor has the shim's name, which the shim wins, and also a name of its
     * own. Look up only names that exist: dlsym would allocate its error message, and an allocator
     * that locks would come here again. */
    if (&address_sanitizer || &thread_sanitizer) {
        char intercepted[64];
        snprintf(intercepted, sizeof intercepted, "__interceptor_%s", name);
        void *sanitizer = dlsym(RTLD_DEFAULT, intercepted);
        if (sanitizer)
            return sanitizer;
    }
    /* Without a version, dlsym returns the oldest pthread_cond_wait, which uses another
     * structure. */
    void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
    if (!found)
        found = dlsym(RTLD_NEXT, name);
    if (!found) {
        lw_say("no %s in this program's libraries", name);
        abort();
    }
    return found;
}

#if defined(__x86_64__)
#define CONDITION "GLIBC_2.3.2"
#else
#define CONDITION NULL
#endif

REAL(pthread_mutex_lock, NULL)
REAL(pthread_mutex_trylock, NULL)
REAL(pthread_mutex_timedlock, NULL)
REAL(pthread_mutex_unlock, NULL)
REAL(pthread_rwlock_rdlock, NULL)
REAL(pthread_rwlock_wrlock, NULL)
REAL(pthread_rwlock_tryrdlock, NULL)
REAL(pthread_rwlock_trywrlock, NULL)
REAL(pthread_rwlock_unlock, NULL)
REAL(pthread_spin_lock, NULL)
REAL(pthread_spin_trylock, NULL)
REAL(pthread_spin_unlock, NULL)
REAL(pthread_cond_wait, CONDITION)
REAL(pthread_cond_timedwait, CONDITION)
REAL(pthread_cond_clockwait, NULL)
REAL(pthread_create, NULL)
REAL(pthread_join, NULL)
REAL(sem_wait, NULL)
REAL(_exit, NULL)

static inline bool on(void) {
    return LW_UNLIKELY(atomic_load_explicit(&lw_locks, memory_order_relaxed) != LW_LOCKS_OFF) && lw_self != LW_NOBODY;
}

/* Whether this thread's holds are recorded. */
static inline bool holds_on(void) { return atomic_load_explicit(&lw_locks, memory_order_relaxed) == LW_LOCKS_ALL; }

/* ---- locks that this thread holds ------------------------------------------------------------ */

struct held {
    volatile const void *lock;
    const void *site;
    uint64_t since;
    uint64_t wait; /* << 8 | object */
};
/* Holds of this thread, in one structure so that its address is computed once.
 *
 * Holds begin at index 1; entry 0 matches no lock. `top` is the byte offset of the newest hold,
 * which saves a multiplication at each use. */
static __thread struct {
    struct held held[MAX_HELD + 1];
    uint64_t top;
    uint32_t session;
} mine LW_INITIAL_EXEC;
#define ONE sizeof(struct held)

static inline struct held *hold_at(uint64_t top) { return (struct held *)((char *)mine.held + top); }

static inline uint64_t wait_of(const struct held *hold) { return hold->wait >> 8; }
static inline enum lw_object object_of(const struct held *hold) { return (enum lw_object)(hold->wait & 255); }

static __attribute__((noinline)) void say(enum lw_kind kind, enum lw_object object, volatile const void *lock, const void *site,
                                          uint64_t extra, uint64_t time) {
    struct lw_thread *self = lw_thread_self();
    if (self)
        lw_push(self, LW_LOCKS, lw_pack(lock, kind | (unsigned)object << 4), (uint64_t)(uintptr_t)site, extra, time);
}

/* Handles a full list. It may contain holds of an earlier recording, whose locks were released
 * while nothing recorded. */
static __attribute__((noinline)) void acquired_many(volatile const void *lock, enum lw_object object, const void *site, uint64_t since,
                                                    uint64_t wait) {
    uint32_t session = atomic_load_explicit(&lw_session, memory_order_relaxed);
    if (mine.session != session) {
        mine.session = session;
        mine.held[1] = (struct held){.lock = lock, .site = site, .since = since, .wait = wait << 8 | object};
        mine.top = ONE;
    } else if (wait >= LW_GET(lock_threshold)) {
        say(LW_ACQUIRED, object, lock, site, wait, since);
    }
}

static inline __attribute__((always_inline)) void acquired(volatile const void *lock, enum lw_object object, const void *site,
                                                             uint64_t since, uint64_t wait) {
    uint64_t top = mine.top;
    if (LW_UNLIKELY(top >= MAX_HELD * ONE))
        return acquired_many(lock, object, site, since, wait);
    struct held *next = hold_at(top + ONE);
    next->lock = lock;
    next->site = site;
    next->since = since;
    next->wait = wait << 8 | object;
    mine.top = top + ONE;
    if (LW_UNLIKELY(LW_GET(counting)))
        atomic_fetch_add_explicit(&lw_locks_counted, 1, memory_order_relaxed);
}

/* Removes the newest hold of `lock` from the list; false if there is none. */
static __attribute__((noinline)) bool forget(volatile const void *lock, struct held *into) {
    for (uint64_t at = mine.top; at > 0; at -= ONE) {
        if (hold_at(at)->lock != lock)
            continue;
        *into = *hold_at(at);
        for (; at < mine.top; at += ONE)
            *hold_at(at) = *hold_at(at + ONE);
        mine.top -= ONE;
        return true;
    }
    return false;
}

static __attribute__((noinline)) void released(const struct held *hold, uint64_t now, bool wanted) {
    if (hold->since < LW_GET(began))
        return; /* acquired during an earlier recording */
    uint64_t since = hold->since == LW_GET(slept) ? LW_GET(woke) : hold->since;
    uint64_t wait = wait_of(hold);
    uint64_t length = now > since ? now - since : 0;
    if (!wanted && length < LW_GET(hold_threshold) && wait < LW_GET(lock_threshold))
        return;
    if ((length | wait) <= UINT32_MAX) {
        say(LW_HELD, object_of(hold), hold->lock, hold->site, wait | length << 32, now);
    } else {
        say(LW_ACQUIRED, object_of(hold), hold->lock, hold->site, wait, hold->since);
        say(LW_RELEASED, object_of(hold), hold->lock, hold->site, 0, now);
    }
}

/* Whether a thread waits for a lock that this thread holds, where that is cheap to find out. */
static inline bool is_wanted(const volatile void *lock, enum lw_object object) {
#if defined(__GLIBC__)
    return object == LW_MUTEX && ((const volatile pthread_mutex_t *)lock)->__data.__lock > 1;
#else
    (void)lock, (void)object;
    return false;
#endif
}

/* ---- locks ----------------------------------------------------------------------------------- */

/* Defines one intercepted function. Each has a pointer to its current target. While nothing
 * records, a call costs one jump to the real function. */
#define SWITCHED(function, type)                                                                                                              \
    static int first_##function(type *lock);                                                                                                  \
    static int recorded_##function(type *lock);                                                                                               \
    static int (*now_##function)(type *) = first_##function;                                                                                  \
    static int first_##function(type *lock) {                                                                                                 \
        int (*expected)(type *) = first_##function;                                                                                           \
        __atomic_compare_exchange_n(&now_##function, &expected, get_##function(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                 \
        return get_##function()(lock);                                                                                                        \
    }                                                                                                                                         \
    static void switch_##function(enum lw_locks what) {                                                                                       \
        int (*to)(type *) = what == LW_LOCKS_ALL ? recorded_##function : what == LW_LOCKS_WAITS ? waits_for_##function() : first_##function;  \
        __atomic_store_n(&now_##function, to, __ATOMIC_RELEASE);                                                                              \
    }                                                                                                                                         \
    /* A tail jump keeps the program's return address; a sanitizer would turn it into a call. The                                             \
     * pointer is not atomic: compilers need two instructions to jump through an atomic one. */                                               \
    LW_EXPORT __attribute__((disable_sanitizer_instrumentation)) int function(type *lock) {                                                   \
        __attribute__((musttail)) return now_##function(lock);                                                                                \
    }                                                                                                                                         \
    static int recorded_##function(type *lock)

/* Real function, without a check: `lw_shim_switch` looks up all of them before anything records. */
#define KNOWN(name) (*atomic_load_explicit(&real_##name, memory_order_relaxed))

/* Calls `try` first: a free lock, as most are, involves no wait and no reading of an exact clock.
 *
 * The coarse clock gives the time of acquisition: it costs next to nothing, and a lock is often
 * released within some nanoseconds. So waits are exact. Holds are exact to a tick, or exact if the
 * thread waited for the lock. */
#define LOCK(function, try, type, object_)                                                                                                    \
    /* `first` is the result of `try`. */                                                                                                     \
    static __attribute__((noinline)) int waited_##function(type *lock, int first, const void *site) {                                         \
        if (first != EBUSY)                                                                                                                   \
            return first;                                                                                                                     \
        uint64_t began = lw_now();                                                                                                            \
        int result = get_##function()(lock);                                                                                                  \
        uint64_t now = lw_now();                                                                                                              \
        if (result == 0 && holds_on())                                                                                                        \
            acquired(lock, object_, site, now, now - began);                                                                                  \
        else if (result == 0 && now - began >= LW_GET(lock_threshold))                                                                        \
            say(LW_WAITED, object_, lock, site, now - began, now);                                                                            \
        return result;                                                                                                                        \
    }                                                                                                                                         \
    static int waits_##function(type *lock) {                                                                                                 \
        int result = KNOWN(try)(lock);                                                                                                        \
        return LW_UNLIKELY(result != 0) ? waited_##function(lock, result, HERE) : 0;                                                          \
    }                                                                                                                                         \
    static int (*waits_for_##function(void))(type *) { return waits_##function; }                                                             \
    SWITCHED(function, type) {                                                                                                                \
        int result = KNOWN(try)(lock);                                                                                                        \
        if (LW_UNLIKELY(result != 0))                                                                                                         \
            return waited_##function(lock, result, HERE);                                                                                     \
        acquired(lock, object_, HERE, LW_GET(now), 0);                                                                                        \
        return 0;                                                                                                                             \
    }
/* Target while only waits are recorded, for functions that never wait: the real one. */
#define WITHOUT_WAIT(function, type)                                                                                                          \
    static int (*waits_for_##function(void))(type *) { return get_##function(); }
#define TRY(function, type, object_)                                                                                                          \
    WITHOUT_WAIT(function, type)                                                                                                              \
    SWITCHED(function, type) {                                                                                                                \
        int result = KNOWN(function)(lock);                                                                                                   \
        if (result == 0)                                                                                                                      \
            acquired(lock, object_, HERE, LW_GET(now), 0);                                                                                    \
        return result;                                                                                                                        \
    }
#define UNLOCK(function, type, object_)                                                                                                       \
    /* Releases a lock that is not the newest hold, or that has no hold. */                                                                   \
    static __attribute__((noinline)) int unlock_other_##function(type *lock) {                                                                \
        struct held hold;                                                                                                                     \
        bool known = forget(lock, &hold);                                                                                                     \
        uint64_t now = known && wait_of(&hold) ? lw_now() : LW_GET(now);                                                                      \
        int result = get_##function()(lock);                                                                                                  \
        if (known)                                                                                                                            \
            released(&hold, now, false);                                                                                                      \
        return result;                                                                                                                        \
    }                                                                                                                                         \
    /* Releases a lock that was waited for, or during whose hold the clock ticked. `since` may be                                             \
     * exact and ahead of the coarse clock; the lock was then just acquired. */                                                               \
    static __attribute__((noinline)) int unlock_long_##function(type *lock, uint64_t top) {                                                   \
        const struct held *hold = hold_at(top);                                                                                               \
        bool exact = wait_of(hold) != 0;                                                                                                      \
        uint64_t now = exact ? lw_now() : LW_GET(now);                                                                                        \
        bool wanted = now > hold->since && is_wanted(lock, object_);                                                                          \
        int result = get_##function()(lock);                                                                                                  \
        released(hold, now, wanted);                                                                                                          \
        return result;                                                                                                                        \
    }                                                                                                                                         \
    WITHOUT_WAIT(function, type)                                                                                                              \
    SWITCHED(function, type) {                                                                                                                \
        uint64_t top = mine.top;                                                                                                              \
        if (LW_UNLIKELY(hold_at(top)->lock != lock))                                                                                          \
            return unlock_other_##function(lock);                                                                                             \
        mine.top = top - ONE;                                                                                                                 \
        if (LW_UNLIKELY(LW_GET(now) - hold_at(top)->since >= LW_GET(hold_least)))                                                             \
            return unlock_long_##function(lock, top);                                                                                         \
        return KNOWN(function)(lock);                                                                                                         \
    }

LOCK(pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_t, LW_MUTEX)
TRY(pthread_mutex_trylock, pthread_mutex_t, LW_MUTEX)
UNLOCK(pthread_mutex_unlock, pthread_mutex_t, LW_MUTEX)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, pthread_rwlock_t, LW_READER)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, pthread_rwlock_t, LW_WRITER)
TRY(pthread_rwlock_tryrdlock, pthread_rwlock_t, LW_READER)
TRY(pthread_rwlock_trywrlock, pthread_rwlock_t, LW_WRITER)
UNLOCK(pthread_rwlock_unlock, pthread_rwlock_t, LW_WRITER)
LOCK(pthread_spin_lock, pthread_spin_trylock, pthread_spinlock_t, LW_SPIN)
TRY(pthread_spin_trylock, pthread_spinlock_t, LW_SPIN)
UNLOCK(pthread_spin_unlock, pthread_spinlock_t, LW_SPIN)

#define ALL_SWITCHED(does)                                                                                                                    \
    does(pthread_mutex_lock) does(pthread_mutex_trylock) does(pthread_mutex_unlock) does(pthread_rwlock_rdlock)                               \
    does(pthread_rwlock_wrlock) does(pthread_rwlock_tryrdlock) does(pthread_rwlock_trywrlock) does(pthread_rwlock_unlock)                     \
    does(pthread_spin_lock) does(pthread_spin_trylock) does(pthread_spin_unlock)

LW_EXPORT void lw_shim_switch(enum lw_locks what) {
#define FIND(function) get_##function();
#define SWITCH(function) switch_##function(what);
    if (what != LW_LOCKS_OFF) {
        ALL_SWITCHED(FIND)
    }
    ALL_SWITCHED(SWITCH)
    lw_futex_switch(what);
}

LW_EXPORT int pthread_mutex_timedlock(pthread_mutex_t *lock, const struct timespec *until) {
    if (LW_LIKELY(!on()))
        return get_pthread_mutex_timedlock()(lock, until);
    uint64_t began = lw_now();
    int result = get_pthread_mutex_timedlock()(lock, until);
    uint64_t now = lw_now();
    if (result == 0 && holds_on())
        acquired(lock, LW_MUTEX, HERE, now, now - began);
    else if ((result == ETIMEDOUT || result == 0) && now - began >= LW_GET(lock_threshold))
        say(LW_WAITED, LW_MUTEX, lock, HERE, now - began, now);
    return result;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* A wait for a condition ends the hold of its mutex and begins another. */
static void waited(pthread_cond_t *condition, pthread_mutex_t *lock, const void *site, const struct held *before, bool known,
                   uint64_t began) {
    uint64_t now = lw_now();
    if (known)
        released(before, began, false);
    if (now - began >= LW_GET(lock_threshold))
        say(LW_WAITED, LW_CONDITION, condition, site, now - began, now);
    if (holds_on())
        acquired(lock, LW_MUTEX, site, now, 0);
}

LW_EXPORT int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock) {
    if (LW_LIKELY(!on()))
        return get_pthread_cond_wait()(condition, lock);
    struct held before;
    bool known = forget(lock, &before) && holds_on();
    uint64_t began = lw_now();
    int result = get_pthread_cond_wait()(condition, lock);
    waited(condition, lock, HERE, &before, known, began);
    return result;
}

LW_EXPORT int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until) {
    if (LW_LIKELY(!on()))
        return get_pthread_cond_timedwait()(condition, lock, until);
    struct held before;
    bool known = forget(lock, &before) && holds_on();
    uint64_t began = lw_now();
    int result = get_pthread_cond_timedwait()(condition, lock, until);
    waited(condition, lock, HERE, &before, known, began);
    return result;
}

/* Used by std::condition_variable. */
LW_EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *lock, clockid_t clock, const struct timespec *until) {
    if (LW_LIKELY(!on()))
        return get_pthread_cond_clockwait()(condition, lock, clock, until);
    struct held before;
    bool known = forget(lock, &before) && holds_on();
    uint64_t began = lw_now();
    int result = get_pthread_cond_clockwait()(condition, lock, clock, until);
    waited(condition, lock, HERE, &before, known, began);
    return result;
}

static void waited_for(enum lw_object object, volatile const void *what, const void *site, uint64_t began) {
    uint64_t now = lw_now();
    if (now - began >= LW_GET(lock_threshold))
        say(LW_WAITED, object, what, site, now - began, now);
}

LW_EXPORT int sem_wait(sem_t *semaphore) {
    if (LW_LIKELY(!on()))
        return get_sem_wait()(semaphore);
    uint64_t began = lw_now();
    int result = get_sem_wait()(semaphore);
    int error = errno;
    waited_for(LW_SEMAPHORE, semaphore, HERE, began);
    errno = error;
    return result;
}

LW_EXPORT int pthread_join(pthread_t thread, void **value) {
    if (LW_LIKELY(!on()))
        return get_pthread_join()(thread, value);
    uint64_t began = lw_now();
    int result = get_pthread_join()(thread, value);
    waited_for(LW_JOIN, (void *)(uintptr_t)thread, HERE, began);
    return result;
}

/* ---- threads, and the end of the process ----------------------------------------------------- */

struct start {
    void *(*routine)(void *);
    void *argument;
};

static void *in_new_thread(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
    lw_thread_begin();
    return start.routine(start.argument);
}

LW_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    struct start *start = NULL;
    if (lw_control_exists() && !lw_making_helper)
        start = malloc(sizeof *start);
    if (!start)
        return get_pthread_create()(thread, attributes, routine, argument);
    *start = (struct start){.routine = routine, .argument = argument};
    int result = get_pthread_create()(thread, attributes, in_new_thread, start);
    if (result != 0)
        free(start);
    return result;
}

/* Ends the process without destructors, so the recording is completed first. A child of vfork is
 * not the recorded process. */
LW_EXPORT _Noreturn void _exit(int status) {
    lw_finish_process();
    get__exit()(status);
    __builtin_unreachable();
}
LW_EXPORT _Noreturn void _Exit(int status) { _exit(status); }
