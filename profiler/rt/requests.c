/* Implementation of leeward_profile.h. */
#include "leeward_profile.h"

#include "rt.h"

static _Atomic uint64_t counter;

static void push(unsigned kind, uint64_t id, const void *queue) {
    if (!atomic_load_explicit(&lw_recording, memory_order_relaxed))
        return;
    struct lw_thread *self = lw_thread_self();
    if (self)
        lw_push(self, LW_REQUESTS, lw_pack(queue, kind | (queue ? LW_MARK_QUEUE : 0)), id, 0, lw_now());
}

static void push_other(enum lw_sort sort, uint64_t detail, uint64_t id, uint64_t value) {
    if (!atomic_load_explicit(&lw_recording, memory_order_relaxed))
        return;
    struct lw_thread *self = lw_thread_self();
    if (self)
        lw_push(self, LW_REQUESTS, (detail << 8 | sort) << 8 | LW_OTHER, id, value, lw_now());
}

LW_EXPORT void leeward_req_start(uint64_t id, const void *queue) { push(LW_REQ_START, id, queue); }
LW_EXPORT void leeward_req_block(uint64_t id, const void *queue) { push(LW_REQ_BLOCK, id, queue); }
LW_EXPORT void leeward_req_end(uint64_t id) { push(LW_REQ_END, id, NULL); }
LW_EXPORT void leeward_req_end_all(void) { push(LW_REQ_END_ALL, 0, NULL); }

LW_EXPORT void leeward_req_label(uint64_t id, const char *label) {
    if (label && atomic_load_explicit(&lw_recording, memory_order_relaxed))
        push_other(LW_LABEL, 0, id, lw_label_number(label));
}

static uint64_t big_endian(const uint8_t bytes[8]) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

LW_EXPORT void leeward_req_trace(uint64_t id, const uint8_t trace[16], uint64_t span, uint64_t parent) {
    if (!trace || !atomic_load_explicit(&lw_recording, memory_order_relaxed))
        return;
    push_other(LW_CONTEXT, LW_TRACE_HIGH, id, big_endian(trace));
    push_other(LW_CONTEXT, LW_TRACE_LOW, id, big_endian(trace + 8));
    push_other(LW_CONTEXT, LW_SPAN, id, span);
    if (parent)
        push_other(LW_CONTEXT, LW_PARENT, id, parent);
}

LW_EXPORT void leeward_req_call(uint64_t id, uint64_t span, const char *peer) {
    if (atomic_load_explicit(&lw_recording, memory_order_relaxed))
        push_other(LW_REMOTE_CALL, peer ? lw_label_number(peer) : 0, id, span);
}

LW_EXPORT void leeward_req_answer(uint64_t id, uint64_t span) { push_other(LW_REMOTE_ANSWER, 0, id, span); }

LW_EXPORT uint64_t __leeward_next_request(void) {
    return atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed) + 1;
}

/* ---- for leeward-trace (abi.h) --------------------------------------------------------------- */

LW_EXPORT int __leeward_recording(void) { return atomic_load_explicit(&lw_recording, memory_order_relaxed); }

LW_EXPORT uint64_t __leeward_named_queue(const char *name) {
    if (!name || !__leeward_recording())
        return 0;
    uint32_t number = lw_label_number(name);
    return number ? LW_QUEUE_NAMED + number : 0;
}

LW_EXPORT __attribute__((noinline)) uint64_t __leeward_stack_queue(void) {
    if (!__leeward_recording())
        return 0;
    uint32_t number = lw_stack_number(__builtin_frame_address(0));
    return number ? LW_QUEUE_STACK + number : 0;
}
