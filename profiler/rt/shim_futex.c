/* Waits of locks that are not pthread's: `std::sync` and `parking_lot` of Rust call the kernel's
 * futex by the C library's `syscall`.
 *
 * Such a lock wakes another thread when it is released while somebody waits. So a wake is recorded
 * as a release: that thread held the lock, since when is not known.
 *
 * Contains no other system call: each is passed on by a jump. */
#include "rt.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>

typedef long lw_syscall(long number, long a, long b, long c, long d, long e, long f);

/* Set where a recording may begin (shim_filters.c); it is the target of calls of `syscall`. */
extern lw_syscall *lw_next_syscall __attribute__((visibility("hidden")));
static lw_syscall recorded;
static lw_syscall *real;

/* Object of an unknown kind, as in docs/trace-format.md. */
#define OBJECT 7u

void lw_futex_switch(enum lw_locks what) {
    lw_syscall *next = __atomic_load_n(&lw_next_syscall, __ATOMIC_ACQUIRE);
    if (!next)
        return;
    if (next != recorded)
        __atomic_store_n(&real, next, __ATOMIC_RELEASE);
    __atomic_store_n(&lw_next_syscall, what == LW_LOCKS_OFF ? real : recorded, __ATOMIC_RELEASE);
}

/* Return address of the function that called `syscall`: it is the lock's slow path, whose caller is
 * the program.
 *
 * The standard library has frame pointers. Elsewhere the register holds anything, so only the page
 * of this frame is read. */
static const void *site_of(const uintptr_t *frame) {
    const uintptr_t outer = frame[0];
    bool readable = outer > (uintptr_t)frame && outer % sizeof outer == 0 && (outer ^ (uintptr_t)frame) < 4096 && (outer + 8) % 4096 != 0;
    return (const void *)(readable ? ((const uintptr_t *)outer)[1] : frame[1]);
}

static void say(enum lw_kind kind, long address, const void *site, uint64_t wait, uint64_t time) {
    struct lw_thread *self = lw_thread_self();
    if (self)
        lw_push(self, LW_LOCKS, lw_pack((const void *)address, kind | OBJECT << 4), (uint64_t)(uintptr_t)site, wait, time);
}

static __attribute__((noinline)) long waits(const void *site, long a, long b, long c, long d, long e, long f) {
    uint64_t began = lw_now();
    long result = real(SYS_futex, a, b, c, d, e, f);
    int error = errno;
    uint64_t now = lw_now();
    if (now - began >= LW_GET(lock_threshold))
        say(LW_WAITED, a, site, now - began, now);
    errno = error;
    return result;
}

static __attribute__((noinline)) long wakes(const void *site, long a, long b, long c, long d, long e, long f) {
    uint64_t now = lw_now();
    long result = real(SYS_futex, a, b, c, d, e, f);
    int error = errno;
    if (result > 0 && atomic_load_explicit(&lw_locks, memory_order_relaxed) == LW_LOCKS_ALL)
        say(LW_RELEASED, a, site, 0, now);
    errno = error;
    return result;
}

static long recorded(long number, long a, long b, long c, long d, long e, long f) {
    if (number == SYS_futex && lw_self != LW_NOBODY && atomic_load_explicit(&lw_recording, memory_order_relaxed)) {
        int operation = (int)b & FUTEX_CMD_MASK;
        if (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET)
            return waits(site_of(__builtin_frame_address(0)), a, b, c, d, e, f);
        if (operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET)
            return wakes(__builtin_return_address(0), a, b, c, d, e, f);
    }
    __attribute__((musttail)) return real(number, a, b, c, d, e, f);
}
