/* Weak symbols with which shared libraries are linked: the same as the run-time's, but without
 * effect.
 *
 * In a program with the run-time (linked or preloaded), the run-time's symbols come first and these
 * are unused. In any other program the library works as if it were not instrumented. */
#include "leeward_profile.h"

#include "abi.h"

#define STUB LW_EXPORT __attribute__((weak))

STUB struct lw_clock lw_clock;
STUB __thread struct lw_shadow lw_shadow;

STUB LW_PRESERVE void __leeward_tick_slow(uint64_t start, uint64_t end, const void *function, const void *caller) {
    (void)start, (void)end, (void)function, (void)caller;
}
STUB void __leeward_sleds_add(struct lw_sleds *sleds) { (void)sleds; }
STUB void __leeward_sleds_remove(struct lw_sleds *sleds) { (void)sleds; }
STUB void leeward_req_start(uint64_t id, const void *queue) { (void)id, (void)queue; }
STUB void leeward_req_block(uint64_t id, const void *queue) { (void)id, (void)queue; }
STUB void leeward_req_label(uint64_t id, const char *label) { (void)id, (void)label; }
STUB void leeward_req_trace(uint64_t id, const uint8_t trace[16], uint64_t span, uint64_t parent) {
    (void)id, (void)trace, (void)span, (void)parent;
}
STUB void leeward_req_call(uint64_t id, uint64_t span, const char *peer) { (void)id, (void)span, (void)peer; }
STUB void leeward_req_answer(uint64_t id, uint64_t span) { (void)id, (void)span; }
STUB void leeward_req_end(uint64_t id) { (void)id; }
STUB void leeward_req_end_all(void) {}
STUB uint64_t __leeward_next_request(void) { return 0; }

/* Table of the library's sleds, which the program's run-time patches. */
LW_DECLARE_SLEDS

/* Before the library's other constructors, and after its other destructors. */
__attribute__((constructor(101))) static void begin(void) { __leeward_sleds_add(&own_sleds); }
__attribute__((destructor(101))) static void end(void) { __leeward_sleds_remove(&own_sleds); }
