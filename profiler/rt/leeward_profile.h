/* Calls by which a program tells the profiler the request that a thread works on. Thread-safe.
 *
 * A call costs about a nanosecond without the profiler's run-time (see LEEWARD_PROFILE_DISABLED),
 * and while nothing records.
 *
 * A thread may work on several requests (a batch), and several threads on one. The program chooses
 * the ids; ids of distributed tracing fit. The program may use an id again after that request has
 * ended. */
#ifndef LEEWARD_PROFILE_H
#define LEEWARD_PROFILE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define LEEWARD_NO_QUEUE = 0
#else
#define LEEWARD_NO_QUEUE
#endif

/* Excludes one function from the profile: `LEEWARD_IGNORE int tiny(void);` */
#define LEEWARD_IGNORE __attribute__((annotate("leeward-ignore")))

#ifndef LEEWARD_PROFILE_DISABLED

/* This thread begins or resumes work on request `id`.
 *
 * `queue` identifies the queue from which the thread took the request: any address that is unique
 * to the queue, or NULL. */
void leeward_req_start(uint64_t id, const void *queue LEEWARD_NO_QUEUE);

/* Labels request `id` with its kind, such as a command's name or a route.
 *
 * The call copies at most 63 bytes of the text. A program may use up to a thousand different
 * labels. */
void leeward_req_label(uint64_t id, const char *label);

/* Request `id` belongs to a trace of several processes (docs/profile-join.md).
 *
 * `trace` is the trace id, `span` the request's own span id, and `parent` the span id that the
 * caller sent, or 0. Those of W3C's `traceparent` fit: its numbers are big-endian. */
void leeward_req_trace(uint64_t id, const uint8_t trace[16], uint64_t span, uint64_t parent);

/* Request `id` sends a call to another process, with the new span id `span`.
 *
 * `peer` names the other process, or is NULL. It is a label like those of requests. */
void leeward_req_call(uint64_t id, uint64_t span, const char *peer);

/* The answer to the call with `span` has been received. Any thread may say so. */
void leeward_req_answer(uint64_t id, uint64_t span);

/* This thread puts request `id` into `queue` (or NULL), from which another thread takes it. */
void leeward_req_block(uint64_t id, const void *queue);

/* Request `id` has ended. */
void leeward_req_end(uint64_t id);

/* All requests that this thread works on have ended. */
void leeward_req_end_all(void);

#else

static inline void leeward_req_start(uint64_t id, const void *queue LEEWARD_NO_QUEUE) { (void)id, (void)queue; }
static inline void leeward_req_label(uint64_t id, const char *label) { (void)id, (void)label; }
static inline void leeward_req_trace(uint64_t id, const uint8_t trace[16], uint64_t span, uint64_t parent) { (void)id, (void)trace, (void)span, (void)parent; }
static inline void leeward_req_call(uint64_t id, uint64_t span, const char *peer) { (void)id, (void)span, (void)peer; }
static inline void leeward_req_answer(uint64_t id, uint64_t span) { (void)id, (void)span; }
static inline void leeward_req_block(uint64_t id, const void *queue) { (void)id, (void)queue; }
static inline void leeward_req_end(uint64_t id) { (void)id; }
static inline void leeward_req_end_all(void) {}

#endif

#undef LEEWARD_NO_QUEUE
#ifdef __cplusplus
}
#endif
#endif
