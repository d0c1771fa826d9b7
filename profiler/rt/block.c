/* Blocks of events: their encoding (docs/trace-format.md, "Events"), and the queues between the
 * clock thread and the control thread. */
#include "rt.h"

#include <string.h>
#include <sys/mman.h>

/* All blocks hold 16 MiB. At 100 MB/s the disk may stall for 160 ms before threads' rings fill. */
#define BLOCKS 256u

/* Queue with one producer and one consumer, and a slot for every block. */
struct way {
    _Alignas(LW_CACHE_LINE) _Atomic uint32_t head;
    _Alignas(LW_CACHE_LINE) _Atomic uint32_t tail;
    struct lw_block *slots[BLOCKS];
};

static struct lw_block *all;
static struct way full, empty;

static void push(struct way *way, struct lw_block *block) {
    uint32_t head = atomic_load_explicit(&way->head, memory_order_relaxed);
    way->slots[head % BLOCKS] = block;
    atomic_store_explicit(&way->head, head + 1, memory_order_release);
}

static struct lw_block *pop(struct way *way) {
    uint32_t tail = atomic_load_explicit(&way->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&way->head, memory_order_acquire))
        return NULL;
    struct lw_block *block = way->slots[tail % BLOCKS];
    atomic_store_explicit(&way->tail, tail + 1, memory_order_release);
    return block;
}

bool lw_blocks_allocate(void) {
    if (!all) {
        void *memory = mmap(NULL, BLOCKS * sizeof *all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return false;
        all = memory;
    }
    lw_blocks_reset();
    return true;
}

void lw_blocks_reset(void) {
    memset(&full, 0, sizeof full);
    memset(&empty, 0, sizeof empty);
    for (uint32_t i = 0; all && i < BLOCKS; i++)
        push(&empty, &all[i]);
}

struct lw_block *lw_block_take(void) { return pop(&empty); }
void lw_block_hand_in(struct lw_block *block) { push(&full, block); }
struct lw_block *lw_block_next_full(void) { return pop(&full); }
void lw_block_give_back(struct lw_block *block) { push(&empty, block); }

void lw_block_open(struct lw_block *block, uint32_t number, uint64_t now) {
    block->thread = NULL;
    block->last = false;
    block->number = number;
    block->count = 0;
    block->length = LW_BLOCK_FRONT;
    block->opened = now;
    block->base = block->time = now;
    block->earliest = UINT64_MAX;
    block->latest = 0;
    block->first = block->second = block->id = 0;
    memset(block->used, 0, sizeof block->used);
}

static uint8_t *varint(uint8_t *at, uint64_t value) {
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *fixed(uint8_t *at, uint64_t value) {
    memcpy(at, &value, 8);
    return at + 8;
}

static uint8_t *difference(uint8_t *at, uint64_t now, uint64_t before) {
    int64_t change = (int64_t)(now - before);
    return varint(at, (uint64_t)change << 1 ^ (uint64_t)(change >> 63));
}

/* Encodes the fields of an LW_OTHER event after their length. */
static uint8_t *other(uint8_t *at, uint64_t address, const struct lw_event *event) {
    *at++ = (uint8_t)address;
    at = varint(at, event->second);
    switch (address & 0xFF) {
    case LW_CONTEXT:
        *at++ = (uint8_t)(address >> 8);
        return fixed(at, event->extra);
    case LW_REMOTE_CALL:
        return varint(fixed(at, event->extra), address >> 8);
    case LW_REMOTE_ANSWER:
        return fixed(at, event->extra);
    default: /* LW_LABEL */
        return varint(at, event->extra);
    }
}

/* Appends a pair of addresses, or the number of its slot if the slot holds that pair. `kind`
 * receives the mark. */
static uint8_t *pair(struct lw_block *block, uint8_t *at, uint8_t *kind, uint64_t first, uint64_t second) {
    uint8_t slot = (uint8_t)(((first ^ second * 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u) >> 56);
    if (block->used[slot] && block->pairs[slot][0] == first && block->pairs[slot][1] == second) {
        *kind |= LW_MARK_KNOWN;
        *at++ = slot;
        return at;
    }
    at = difference(at, first, block->first);
    at = difference(at, second, block->second);
    block->first = block->pairs[slot][0] = first;
    block->second = block->pairs[slot][1] = second;
    block->used[slot] = 1;
    return at;
}

void lw_block_append(struct lw_block *block, const struct lw_event *event) {
    uint8_t *kind = block->bytes + block->length;
    uint8_t *at = kind + 1;
    uint64_t address = event->first >> 8;
    uint64_t length = 0; /* from the event's begin to its time */
    *kind = (uint8_t)event->first;
    at = difference(at, event->time, block->time);
    switch (*kind & 15) {
    case LW_CALL:
        /* The clock is coarse, but never goes back. */
        length = event->time > event->extra ? event->time - event->extra : 0;
        at = varint(at, length);
        at = pair(block, at, kind, address, event->second);
        break;
    case LW_HELD:
        length = (event->extra & UINT32_MAX) + (event->extra >> 32);
        at = varint(at, event->extra & UINT32_MAX);
        at = varint(at, event->extra >> 32);
        at = pair(block, at, kind, address, event->second);
        break;
    case LW_WAITED:
    case LW_ACQUIRED:
        length = event->extra;
        at = varint(at, length);
        at = pair(block, at, kind, address, event->second);
        break;
    case LW_RELEASED:
        at = pair(block, at, kind, address, event->second);
        break;
    case LW_REQ_START:
    case LW_REQ_BLOCK:
        at = difference(at, event->second, block->id);
        block->id = event->second;
        if (*kind & LW_MARK_QUEUE)
            at = varint(at, address);
        break;
    case LW_REQ_END:
        at = difference(at, event->second, block->id);
        block->id = event->second;
        break;
    case LW_SWITCHED_OUT:
        at = varint(at, event->extra);
        at = varint(at, event->second);
        break;
    case LW_SWITCHED_IN:
        at = varint(at, event->extra);
        break;
    case LW_LOST:
        *at++ = (uint8_t)event->second;
        at = varint(at, event->extra);
        break;
    case LW_OTHER: {
        uint8_t inside[40];
        uint8_t *end = other(inside, address, event);
        at = varint(at, (uint64_t)(end - inside));
        memcpy(at, inside, (size_t)(end - inside));
        at += end - inside;
        break;
    }
    default: /* LW_REQ_END_ALL has no fields */
        break;
    }
    uint64_t began = event->time - length;
    block->time = event->time;
    if (began < block->earliest)
        block->earliest = began;
    if (event->time > block->latest)
        block->latest = event->time;
    block->count++;
    block->length = (uint32_t)(at - block->bytes);
}

void lw_block_close(struct lw_block *block) {
    uint8_t *front = block->bytes + 16;
    memcpy(front, &block->number, 4);
    memcpy(front + 4, &block->count, 4);
    memcpy(front + 8, &block->base, 8);
    memcpy(front + 16, &block->earliest, 8);
    memcpy(front + 24, &block->latest, 8);
}
