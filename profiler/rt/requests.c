/* Implementation of leeward_profile.h. */
#include "leeward_profile.h"

#include "rt.h"

static _Atomic uint64_t counter;

static void push(unsigned kind, uint64_t id, const void *queue, uint32_t label) {
    if (!atomic_load_explicit(&lw_recording, memory_order_relaxed))
        return;
    struct lw_thread *self = lw_thread_self();
    if (self)
        lw_push(self, LW_REQUESTS, lw_pack(queue, kind | (queue ? LW_MARK_QUEUE : 0)), id, label, lw_now());
}

LW_EXPORT void leeward_req_start(uint64_t id, const void *queue) { push(LW_REQ_START, id, queue, 0); }
LW_EXPORT void leeward_req_block(uint64_t id, const void *queue) { push(LW_REQ_BLOCK, id, queue, 0); }
LW_EXPORT void leeward_req_end(uint64_t id) { push(LW_REQ_END, id, NULL, 0); }
LW_EXPORT void leeward_req_end_all(void) { push(LW_REQ_END_ALL, 0, NULL, 0); }

LW_EXPORT void leeward_req_label(uint64_t id, const char *label) {
    if (label && atomic_load_explicit(&lw_recording, memory_order_relaxed))
        push(LW_LABEL, id, NULL, lw_label_number(label));
}

LW_EXPORT uint64_t __leeward_next_request(void) {
    return atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed) + 1;
}
