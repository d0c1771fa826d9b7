/* Texts of request labels: the table keeps each text once, under a number.
 *
 * A program has few labels (commands, routes). Labels that find no slot share the number 0. */
#include "rt.h"

#include <string.h>

#define LABELS 1024u
#define PROBES 16u
#define TEXT 64u

struct label {
    /* Hash of the text; 0 while the slot is free, 1 while a thread writes it. */
    _Atomic uint64_t hash;
    _Atomic uint32_t number;
    char text[TEXT];
};

static struct label table[LABELS];
/* Labels by number, from 1 on. */
static struct label *_Atomic known[LABELS + 1];
static _Atomic uint32_t count;

/* FNV-1a of the part that is kept. */
static uint64_t hash_of(const char *text, size_t *length) {
    uint64_t hash = 0xcbf29ce484222325u;
    size_t at = 0;
    for (; at < TEXT - 1 && text[at]; at++)
        hash = (hash ^ (uint8_t)text[at]) * 0x100000001b3u;
    *length = at;
    return hash | 2;
}

uint32_t lw_label_number(const char *text) {
    size_t length;
    uint64_t hash = hash_of(text, &length);
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        struct label *label = &table[(hash + probe) % LABELS];
        uint64_t there = atomic_load_explicit(&label->hash, memory_order_acquire);
        if (there == 0 && atomic_compare_exchange_strong(&label->hash, &there, 1)) {
            memcpy(label->text, text, length);
            uint32_t number = atomic_fetch_add(&count, 1) + 1;
            atomic_store(&label->number, number);
            atomic_store(&known[number], label);
            atomic_store_explicit(&label->hash, hash, memory_order_release);
            return number;
        }
        /* Another thread is writing this slot. */
        while (there == 1)
            there = atomic_load_explicit(&label->hash, memory_order_acquire);
        if (there == hash && strncmp(label->text, text, length) == 0 && label->text[length] == '\0')
            return atomic_load_explicit(&label->number, memory_order_relaxed);
    }
    return 0;
}

uint32_t lw_labels_encode(struct lw_payload *p, uint32_t from) {
    uint32_t until = from;
    while (until < LABELS && atomic_load_explicit(&known[until + 1], memory_order_acquire))
        until++;
    if (until == from)
        return from;
    if (until - from > p->room / (TEXT + 8))
        until = from + p->room / (TEXT + 8);
    lw_put_varint(p, until - from);
    for (uint32_t number = from + 1; number <= until; number++) {
        lw_put_varint(p, number);
        lw_put_text(p, atomic_load_explicit(&known[number], memory_order_relaxed)->text);
    }
    return until;
}
