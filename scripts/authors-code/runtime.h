/*
 * Stands in for the runtime of the authors' repository, so that their overload control runs
 * without it: time is a number, a thread runs until it sleeps or parks, and the network is a header
 * that the driver provides.
 *
 * The authors' own headers give lists, bitmaps and atomic numbers. This file has no code of theirs.
 * `scripts/as-published` includes it before each of their files and hides the headers named here.
 */
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <base/atomic.h>
#include <base/bitmap.h>
#include <base/limits.h>
#include <base/list.h>
#include <base/lock.h>
#include <base/stddef.h>

/* Time: microseconds, set by the driver. */
static uint64_t now_us;
static inline uint64_t microtime(void) { return now_us; }

/* Threads. The driver runs a body by `RUN`; it comes back when the body sleeps or parks. */
typedef struct thread { void *session; } thread_t;
typedef void (*thread_fn_t)(void *arg);
static jmp_buf driver;
static thread_t *running;
#define READY_MAX 64
static thread_t *ready[READY_MAX];
static int ready_count;

#define RUN(call)                                                              \
	do {                                                                   \
		if (!setjmp(driver))                                           \
			call;                                                  \
	} while (0)

static inline void back_to_driver(void) { longjmp(driver, 1); }
static inline thread_t *thread_self(void) { return running; }
static inline void thread_ready(thread_t *thread) { ready[ready_count++] = thread; }
static inline void thread_park_and_unlock_np(spinlock_t *lock)
{
	spin_unlock(lock);
	back_to_driver();
}
/* Called with what the body asks to spawn; the driver defines it. */
static int thread_spawn(thread_fn_t body, void *arg);

/* A control loop sleeps first: the driver lets it pass once, so that it runs one period. */
static int sleeps;
static inline void timer_sleep(uint64_t us)
{
	(void)us;
	if (sleeps++)
		back_to_driver();
}
static inline void timer_sleep_until(uint64_t us) { (void)us; }

#define spin_lock_np spin_lock
#define spin_unlock_np spin_unlock
typedef struct mutex { int held; } mutex_t;
typedef struct condvar { int unused; } condvar_t;
typedef struct waitgroup { int unused; } waitgroup_t;
static inline void mutex_init(mutex_t *mutex) { mutex->held = 0; }
static inline void mutex_lock(mutex_t *mutex) { mutex->held = 1; }
static inline void mutex_unlock(mutex_t *mutex) { mutex->held = 0; }
static inline void assert_mutex_held(mutex_t *mutex) { (void)mutex; }
static inline void condvar_init(condvar_t *condition) { (void)condition; }
static inline void condvar_signal(condvar_t *condition) { (void)condition; }
static inline void condvar_wait(condvar_t *condition, mutex_t *mutex) { (void)condition, (void)mutex; back_to_driver(); }
static inline void waitgroup_init(waitgroup_t *group) { (void)group; }
static inline void waitgroup_add(waitgroup_t *group, int count) { (void)group, (void)count; }
static inline void waitgroup_done(waitgroup_t *group) { (void)group; }
static inline void waitgroup_wait(waitgroup_t *group) { (void)group; }

/* The machine. */
static unsigned int cores = 1;
static uint64_t queue_us;
static inline unsigned int runtime_max_cores(void) { return cores; }
static inline unsigned int runtime_active_cores(void) { return cores; }
static inline unsigned int get_current_affinity(void) { return 0; }
static inline uint64_t runtime_queue_us(void) { return queue_us; }
static inline void *smalloc(size_t size) { return calloc(1, size); }
static inline void sfree(void *memory) { free(memory); }

/* The network: one incoming header, and what was sent last. */
struct netaddr { uint32_t ip; uint16_t port; };
typedef struct tcpconn { int unused; } tcpconn_t;
typedef struct tcpqueue { int unused; } tcpqueue_t;
static tcpconn_t connection;
static char incoming[256];
static size_t incoming_length, incoming_read;
static char sent[256];
static size_t sent_length;
static inline ssize_t tcp_read(tcpconn_t *c, void *buffer, size_t length)
{
	(void)c;
	if (incoming_read + length > incoming_length)
		back_to_driver();
	memcpy(buffer, incoming + incoming_read, length);
	incoming_read += length;
	return length;
}
static inline ssize_t tcp_write(tcpconn_t *c, const void *buffer, size_t length)
{
	(void)c;
	sent_length = length;
	memcpy(sent, buffer, length < sizeof(sent) ? length : sizeof(sent));
	return length;
}
static inline ssize_t tcp_writev(tcpconn_t *c, const struct iovec *parts, int count)
{
	ssize_t length = 0;
	for (int i = 0; i < count; i++)
		length += parts[i].iov_len;
	if (count)
		tcp_write(c, parts[0].iov_base, parts[0].iov_len);
	return length;
}
static inline int tcp_dial(struct netaddr from, struct netaddr to, tcpconn_t **c) { (void)from, (void)to; *c = &connection; return 0; }
static inline int tcp_listen(struct netaddr at, int backlog, tcpqueue_t **q) { (void)at, (void)backlog; *q = NULL; return 0; }
static inline int tcp_accept(tcpqueue_t *q, tcpconn_t **c) { (void)q, (void)c; back_to_driver(); return -1; }
static inline void tcp_close(tcpconn_t *c) { (void)c; }

static inline void receive(const void *header, size_t length)
{
	memcpy(incoming, header, length);
	incoming_length = length;
	incoming_read = 0;
}

#define log_warn(...) do { } while (0)
void logk_bug(bool fatal, const char *condition, const char *file, int line, const char *function)
{
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, function, condition);
	if (fatal)
		abort();
}

/* Random numbers of the histories: xorshift64*. */
static uint64_t random_state = 1;
static inline uint64_t random_below(uint64_t bound)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return (random_state * 2685821657736338717ull >> 32) % bound;
}

/* `SEED HISTORIES` from the command line. */
static inline uint64_t read_arguments(int count, char **values)
{
	if (count != 3) {
		fprintf(stderr, "usage: %s SEED HISTORIES\n", values[0]);
		exit(2);
	}
	random_state = strtoull(values[1], NULL, 10) * 2 + 1;
	for (int i = 0; i < 20; i++)
		random_below(2);
	return strtoull(values[2], NULL, 10);
}
