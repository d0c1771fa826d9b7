/* The pthread shim: lock, wait, unlock and create of the program come here first. Each calls the real one and nothing else
 * unless something records. What there is to say of a lock is said after its release, outside of the critical section, and
 * only if it was waited for or held for long enough (thesis §3.3.3). */
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

/* Finds the next definition of a symbol once. */
#define REAL(name, version)                                                                                                         \
    static __typeof__(name) *_Atomic real_##name;                                                                                    \
    static __attribute__((noinline)) __typeof__(name) *find_##name(void) {                                                            \
        __typeof__(name) *found = (__typeof__(name) *)lw_find(#name, version);                                                         \
        atomic_store_explicit(&real_##name, found, memory_order_relaxed);                                                               \
        return found;                                                                                                                    \
    }                                                                                                                                     \
    static inline __typeof__(name) *get_##name(void) {                                                                                     \
        __typeof__(name) *known = atomic_load_explicit(&real_##name, memory_order_relaxed);                                                 \
        return LW_LIKELY(known != NULL) ? known : find_##name();                                                                             \
    }

static void *lw_find(const char *name, const char *version) {
    /* A sanitizer's interceptor has the same name as ours, and lost to it: it has another one as well. */
    char intercepted[64];
    snprintf(intercepted, sizeof intercepted, "__interceptor_%s", name);
    void *sanitizer = dlsym(RTLD_DEFAULT, intercepted);
    if (sanitizer)
        return sanitizer;
    /* Without its version, dlsym answers with the oldest pthread_cond_wait, which means another structure. */
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
    return LW_UNLIKELY(atomic_load_explicit(&lw_locks_on, memory_order_relaxed)) && lw_self != LW_NOBODY;
}

/* ---- what this thread holds ------------------------------------------------------------------------------------------------ */

struct held {
    volatile const void *lock;
    const void *site;
    uint64_t since, wait;
    enum lw_object object;
};
/* One structure, so that its address is found once. */
static __thread struct {
    uint32_t count, session;
    struct held held[MAX_HELD];
} mine LW_INITIAL_EXEC;

static __attribute__((noinline)) void say(enum lw_kind kind, enum lw_object object, volatile const void *lock, const void *site,
                                          uint64_t extra, uint64_t time) {
    struct lw_thread *self = lw_thread_self();
    if (self)
        lw_push(self, LW_LOCKS, lw_pack(lock, kind | (unsigned)object << 4), (uint64_t)(uintptr_t)site, extra, time);
}

static inline __attribute__((always_inline)) void acquired(volatile const void *lock, enum lw_object object, const void *site,
                                                             uint64_t since, uint64_t wait) {
    uint32_t session = atomic_load_explicit(&lw_session, memory_order_relaxed);
    if (LW_UNLIKELY(mine.session != session)) {
        mine.session = session;
        mine.count = 0;
    }
    if (LW_LIKELY(mine.count < MAX_HELD)) {
        struct held *next = &mine.held[mine.count++];
        next->lock = lock;
        next->site = site;
        next->since = since;
        next->wait = wait;
        next->object = object;
    } else if (wait >= LW_GET(lock_threshold)) {
        say(LW_ACQUIRED, object, lock, site, wait, since);
    }
}

/* Takes the newest hold of `lock` off the list; false if there is none. */
static __attribute__((noinline)) bool forget(volatile const void *lock, struct held *into) {
    if (mine.session != atomic_load_explicit(&lw_session, memory_order_relaxed))
        return false;
    for (uint32_t i = mine.count; i-- > 0;) {
        if (mine.held[i].lock != lock)
            continue;
        *into = mine.held[i];
        mine.count--;
        for (; i < mine.count; i++)
            mine.held[i] = mine.held[i + 1];
        return true;
    }
    return false;
}

static __attribute__((noinline)) void released(const struct held *hold, uint64_t now, bool wanted) {
    if (hold->since < LW_GET(began))
        return; /* taken during an earlier recording */
    uint64_t since = hold->since == LW_GET(slept) ? LW_GET(woke) : hold->since;
    uint64_t length = now > since ? now - since : 0;
    if (!wanted && length < LW_GET(hold_threshold) && hold->wait < LW_GET(lock_threshold))
        return;
    if ((length | hold->wait) <= UINT32_MAX) {
        say(LW_HELD, hold->object, hold->lock, hold->site, hold->wait | length << 32, now);
    } else {
        say(LW_ACQUIRED, hold->object, hold->lock, hold->site, hold->wait, hold->since);
        say(LW_RELEASED, hold->object, hold->lock, hold->site, 0, now);
    }
}

/* Whether somebody waits for a lock that this thread holds, if that is easily told. */
static inline bool is_wanted(const volatile void *lock, enum lw_object object) {
#if defined(__GLIBC__)
    return object == LW_MUTEX && ((const volatile pthread_mutex_t *)lock)->__data.__lock > 1;
#else
    (void)lock, (void)object;
    return false;
#endif
}

/* ---- locks -------------------------------------------------------------------------------------------------------------------- */

/* `try` first: a lock that is free, as most are, was not waited for, and costs no look at an exact clock. When it was taken says the
 * coarse clock: a look at it costs next to nothing, and a lock is often given back within some nanoseconds. So waits are exact,
 * and holds are within a tick, or exact if they were waited for. */
#define LOCK(function, try, type, object_)                                                                                            \
    LW_EXPORT int function(type *lock) {                                                                                               \
        if (LW_LIKELY(!on()))                                                                                                           \
            return get_##function()(lock);                                                                                               \
        int result = get_##try()(lock);                                                                                                   \
        if (LW_LIKELY(result == 0))                                                                                                        \
            acquired(lock, object_, HERE, LW_GET(now), 0);                                                                                  \
        if (LW_LIKELY(result != EBUSY))                                                                                                      \
            return result;                                                                                                                    \
        uint64_t began = lw_now();                                                                                                             \
        result = get_##function()(lock);                                                                                                        \
        uint64_t now = lw_now();                                                                                                                 \
        if (result == 0)                                                                                                                          \
            acquired(lock, object_, HERE, now, now - began);                                                                                       \
        return result;                                                                                                                              \
    }
#define TRY(function, type, object_)                                                                                                  \
    LW_EXPORT int function(type *lock) {                                                                                               \
        int result = get_##function()(lock);                                                                                            \
        if (LW_UNLIKELY(on()) && result == 0)                                                                                            \
            acquired(lock, object_, HERE, LW_GET(now), 0);                                                                                \
        return result;                                                                                                                     \
    }
#define UNLOCK(function, type, object_)                                                                                               \
    LW_EXPORT int function(type *lock) {                                                                                               \
        if (LW_LIKELY(!on()))                                                                                                           \
            return get_##function()(lock);                                                                                               \
        uint32_t count = mine.count;                                                                                                      \
        if (LW_UNLIKELY(count == 0 || mine.held[count - 1].lock != lock))                                                                  \
            return unlock_other(lock, get_##function());                                                                                    \
        const struct held *newest = &mine.held[mine.count = count - 1];                                                                      \
        uint64_t now = LW_UNLIKELY(newest->wait) ? lw_now() : LW_GET(now);                                                                    \
        /* The exact clock may be ahead of the coarse one: then it has just been taken. */                                                     \
        int64_t length = (int64_t)(now - newest->since);                                                                                        \
        bool wanted = LW_UNLIKELY(length > 0) && is_wanted(lock, object_);                                                                       \
        int result = get_##function()(lock);                                                                                                      \
        if (LW_UNLIKELY(wanted || length >= (int64_t)LW_GET(hold_threshold) || newest->wait))                                                      \
            released(newest, now, wanted);                                                                                                          \
        return result;                                                                                                                               \
    }

/* Not the lock that was taken last, or none that we know. */
#define unlock_other(lock, unlock)                                                                                                    \
    ({                                                                                                                                 \
        struct held hold_;                                                                                                              \
        bool known_ = forget(lock, &hold_);                                                                                              \
        uint64_t now_ = known_ && hold_.wait ? lw_now() : LW_GET(now);                                                                    \
        int result_ = unlock(lock);                                                                                                        \
        if (known_)                                                                                                                         \
            released(&hold_, now_, false);                                                                                                   \
        result_;                                                                                                                              \
    })

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

LW_EXPORT int pthread_mutex_timedlock(pthread_mutex_t *lock, const struct timespec *until) {
    if (LW_LIKELY(!on()))
        return get_pthread_mutex_timedlock()(lock, until);
    uint64_t began = lw_now();
    int result = get_pthread_mutex_timedlock()(lock, until);
    uint64_t now = lw_now();
    if (result == 0)
        acquired(lock, LW_MUTEX, HERE, now, now - began);
    else if (result == ETIMEDOUT && now - began >= LW_GET(lock_threshold))
        say(LW_WAITED, LW_MUTEX, lock, HERE, now - began, now);
    return result;
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------------ */

/* A wait for a condition ends the hold of its mutex and begins another. */
static void waited(pthread_cond_t *condition, pthread_mutex_t *lock, const void *site, const struct held *before, bool known,
                   uint64_t began) {
    uint64_t now = lw_now();
    if (known)
        released(before, began, false);
    if (now - began >= LW_GET(lock_threshold))
        say(LW_WAITED, LW_CONDITION, condition, site, now - began, now);
    acquired(lock, LW_MUTEX, site, now, 0);
}

LW_EXPORT int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock) {
    if (LW_LIKELY(!on()))
        return get_pthread_cond_wait()(condition, lock);
    struct held before;
    bool known = forget(lock, &before);
    uint64_t began = lw_now();
    int result = get_pthread_cond_wait()(condition, lock);
    waited(condition, lock, HERE, &before, known, began);
    return result;
}

LW_EXPORT int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until) {
    if (LW_LIKELY(!on()))
        return get_pthread_cond_timedwait()(condition, lock, until);
    struct held before;
    bool known = forget(lock, &before);
    uint64_t began = lw_now();
    int result = get_pthread_cond_timedwait()(condition, lock, until);
    waited(condition, lock, HERE, &before, known, began);
    return result;
}

/* What std::condition_variable waits with. */
LW_EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *lock, clockid_t clock, const struct timespec *until) {
    if (LW_LIKELY(!on()))
        return get_pthread_cond_clockwait()(condition, lock, clock, until);
    struct held before;
    bool known = forget(lock, &before);
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

/* ---- threads, and the end of the process ---------------------------------------------------------------------------------------- */

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

/* Ends without destructors: what is recorded goes out first. A child of vfork is not the process that records. */
LW_EXPORT _Noreturn void _exit(int status) {
    lw_finish_process();
    get__exit()(status);
    __builtin_unreachable();
}
LW_EXPORT _Noreturn void _Exit(int status) { _exit(status); }
