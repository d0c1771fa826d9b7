/* Marks of a program for the profiler: the request that a thread works on. Without the profiler's run-time (see
 * LEEWARD_PROFILE_DISABLED) and while nothing records, a call costs about a nanosecond. Thread-safe.
 *
 * A thread may work on several requests (a batch), and several threads on one. Which ids mean what is the program's
 * business; ids of distributed tracing do well. After its end an id may be used again. */
#ifndef LEEWARD_PROFILE_H
#define LEEWARD_PROFILE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define LEEWARD_NO_QUEUE = 0
#else
#define LEEWARD_NO_QUEUE
#endif

/* Keeps one function out of the profile: `LEEWARD_IGNORE int tiny(void);` */
#define LEEWARD_IGNORE __attribute__((annotate("leeward-ignore")))

#ifndef LEEWARD_PROFILE_DISABLED

/* This thread begins to work on request `id`, or goes on with it. `queue`: where it was taken from, any address that
 * tells queues apart, or NULL. */
void leeward_req_start(uint64_t id, const void *queue LEEWARD_NO_QUEUE);

/* Request `id` is of this kind: a command's name, a route. The text is copied; 63 bytes of it count. Programs have up to a thousand different
 * ones. */
void leeward_req_label(uint64_t id, const char *label);

/* This thread puts request `id` into `queue` (or NULL) for whoever goes on with it. */
void leeward_req_block(uint64_t id, const void *queue);

/* Request `id` is over. */
void leeward_req_end(uint64_t id);

/* All requests that this thread works on are over. */
void leeward_req_end_all(void);

#else

static inline void leeward_req_start(uint64_t id, const void *queue LEEWARD_NO_QUEUE) { (void)id, (void)queue; }
static inline void leeward_req_label(uint64_t id, const char *label) { (void)id, (void)label; }
static inline void leeward_req_block(uint64_t id, const void *queue) { (void)id, (void)queue; }
static inline void leeward_req_end(uint64_t id) { (void)id; }
static inline void leeward_req_end_all(void) {}

#endif

#undef LEEWARD_NO_QUEUE
#ifdef __cplusplus
}
#endif
#endif
