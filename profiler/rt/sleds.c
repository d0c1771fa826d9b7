/* Jumps at functions' entries: written while something records, and removed when it stops. Threads
 * of the program execute these entries meanwhile. The compiler plugin decides which functions have
 * one (`pass/Sleds.cpp`). */
#include "sleds.h"

#include <elf.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

LW_DECLARE_SLEDS

static atomic_flag lock = ATOMIC_FLAG_INIT;
static struct lw_sleds *modules;
static bool wanted;
static struct lw_sleds_count counts;

#if defined(__x86_64__)

/* ---- parts of a module ----------------------------------------------------------------------- */

struct segment {
    uintptr_t begin, end;
    int protection;
};

/* Describes segment number `which` of the module in memory; false behind the last. A segment that
 * is not loaded is empty. */
static bool segment_of(const struct lw_sleds *sleds, int which, struct segment *into) {
    const Elf64_Ehdr *elf = sleds->elf;
    const Elf64_Phdr *headers = (const void *)((const char *)elf + elf->e_phoff);
    if (which >= elf->e_phnum)
        return false;
    uintptr_t bias = 0;
    for (int i = 0; i < elf->e_phnum; i++)
        if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0)
            bias = (uintptr_t)elf - headers[i].p_vaddr;
    const Elf64_Phdr *header = &headers[which];
    *into = (struct segment){0};
    if (header->p_type != PT_LOAD)
        return true;
    into->begin = bias + header->p_vaddr;
    into->end = into->begin + header->p_memsz;
    into->protection = (header->p_flags & PF_R ? PROT_READ : 0) | (header->p_flags & PF_W ? PROT_WRITE : 0) | (header->p_flags & PF_X ? PROT_EXEC : 0);
    return true;
}

/* Finds the table around the module's own entry: all adjacent entries. */
static void find_table(struct lw_sleds *sleds) {
    struct segment segment;
    sleds->begin = sleds->end = sleds->own;
    for (int which = 0; segment_of(sleds, which, &segment); which++) {
        if ((uintptr_t)sleds->own < segment.begin || (uintptr_t)sleds->own >= segment.end)
            continue;
        while ((uintptr_t)(sleds->begin - 1) >= segment.begin && sleds->begin[-1].magic == LW_SLED_MAGIC)
            sleds->begin--;
        while ((uintptr_t)(sleds->end + 1) <= segment.end && sleds->end->magic == LW_SLED_MAGIC)
            sleds->end++;
    }
}

/* ---- one sled -------------------------------------------------------------------------------- */

#define SLED_BYTES 5u
static const uint8_t nop[SLED_BYTES] = {0x0f, 0x1f, 0x44, 0x00, 0x00};

static uint8_t *at(const int32_t *field) { return (uint8_t *)field + *field; }

static void jump_to(uint8_t bytes[SLED_BYTES], const uint8_t *entry, const uint8_t *twin) {
    int32_t distance = (int32_t)(twin - (entry + SLED_BYTES));
    bytes[0] = 0xe9;
    memcpy(bytes + 1, &distance, sizeof distance);
}

/* Whether the entry holds the nop or a jump of this run-time. Nothing else is ever replaced, such
 * as a debugger's breakpoint. */
static bool is_ours(const struct lw_sleds *sleds, const struct lw_sled *sled, const uint8_t *entry) {
    uint8_t jump[SLED_BYTES];
    if (memcmp(entry, nop, SLED_BYTES) == 0)
        return true;
    jump_to(jump, entry, at(&sled->twin));
    if (memcmp(entry, jump, SLED_BYTES) == 0)
        return true;
    int32_t distance;
    memcpy(&distance, entry + 1, sizeof distance);
    return entry[0] == 0xe9 && lw_sites_is_stub(sleds->sites, entry + SLED_BYTES + distance);
}

/* Chooses the bytes for this sled's entry. */
static void bytes_for(const struct lw_sleds *sleds, const struct lw_sled *sled, enum lw_sled_state state, uint8_t bytes[SLED_BYTES]) {
    const uint8_t *entry = at(&sled->entry), *to = at(&sled->twin);
    if (sleds->sites) {
        size_t which = (size_t)(sled - sleds->begin);
        const struct lw_site *site = lw_sites_at(sleds->sites, which);
        if (state == LW_SLEDS_COUNT_TWINS || state == LW_SLEDS_COUNT_BODIES)
            to = lw_sites_stub(sleds->sites, which, state == LW_SLEDS_COUNT_TWINS || site->rare);
        else if (state == LW_SLEDS_CHOSEN && !site->kept)
            state = LW_SLEDS_OFF;
    }
    if (state == LW_SLEDS_OFF)
        memcpy(bytes, nop, SLED_BYTES);
    else
        jump_to(bytes, entry, to);
}

/* Writes `to` at an entry by one store of an aligned word: a thread executes either the old
 * instruction or the new one. False if the entry holds something else. */
static bool exchange(const struct lw_sleds *sleds, const struct lw_sled *sled, uint8_t *entry, const uint8_t to[SLED_BYTES]) {
    uint64_t offset = (uintptr_t)entry & 7;
    if (memcmp(entry, to, SLED_BYTES) == 0)
        return true;
    if (offset + SLED_BYTES > sizeof(uint64_t) || !is_ours(sleds, sled, entry))
        return false;
    uint64_t *word = (uint64_t *)(entry - offset), value;
    memcpy(&value, word, sizeof value);
    memcpy((uint8_t *)&value + offset, to, SLED_BYTES);
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    return true;
}

static bool is_within(const struct lw_sled *sled, const struct segment *segment) {
    uintptr_t entry = (uintptr_t)at(&sled->entry);
    return sled->entry != 0 && entry >= segment->begin && entry + SLED_BYTES <= segment->end;
}

/* ---- a module -------------------------------------------------------------------------------- */

/* Switches the module's sleds in this segment. Returns their number; adds those that could not be
 * changed to `counts`. */
static uint64_t switch_segment(const struct lw_sleds *sleds, const struct segment *segment, enum lw_sled_state state) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = UINTPTR_MAX, last = 0;
    uint64_t number = 0;
    for (const struct lw_sled *sled = sleds->begin; sled < sleds->end; sled++) {
        uintptr_t entry = (uintptr_t)at(&sled->entry);
        if (!is_within(sled, segment))
            continue;
        first = entry < first ? entry : first;
        last = entry > last ? entry : last;
        number++;
    }
    if (number == 0)
        return 0;
    first &= ~(page - 1);
    size_t length = ((last + SLED_BYTES + page - 1) & ~(page - 1)) - first;
    /* Threads execute these pages, so they must stay executable. If the program has forbidden pages
     * that are writable and executable, its functions stay unchanged. */
    if (mprotect((void *)first, length, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        counts.error = errno;
        counts.refused += number;
        return number;
    }
    for (const struct lw_sled *sled = sleds->begin; sled < sleds->end; sled++) {
        uint8_t *entry = at(&sled->entry), bytes[SLED_BYTES];
        if (!is_within(sled, segment))
            continue;
        bytes_for(sleds, sled, state, bytes);
        if (!exchange(sleds, sled, entry, bytes))
            counts.strange++;
    }
    mprotect((void *)first, length, segment->protection);
    return number;
}

static void switch_module(struct lw_sleds *sleds, enum lw_sled_state state) {
    /* A module that has sites may be in any state, also in a child that was forked meanwhile. */
    if (!sleds->sites && sleds->patched == (state != LW_SLEDS_OFF))
        return;
    struct segment segment;
    uint64_t all = 0, seen = 0, refused = counts.refused;
    for (const struct lw_sled *sled = sleds->begin; sled < sleds->end; sled++)
        all += sled->entry != 0;
    for (int which = 0; segment_of(sleds, which, &segment); which++)
        if (segment.protection & PROT_EXEC)
            seen += switch_segment(sleds, &segment, state);
    counts.all += all;
    counts.strange += all - seen;
    /* A refused switch may be tried again, by a child, and needs no undoing. */
    sleds->patched = state != LW_SLEDS_OFF && counts.refused == refused;
}

/* Makes other CPUs execute the new instructions now. Without the system call they do so a little
 * later. */
static void let_all_see(void) {
#if defined(SYS_membarrier)
    static bool registered;
    if (!registered)
        registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0;
    if (registered)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
#endif
}

#else

static void find_table(struct lw_sleds *sleds) { (void)sleds; }
static void switch_module(struct lw_sleds *sleds, enum lw_sled_state state) { sleds->patched = state != LW_SLEDS_OFF; }
static void let_all_see(void) {}

#endif

static void add(struct lw_sleds *sleds) {
    if (sleds->known || !sleds->elf)
        return;
    find_table(sleds);
    sleds->known = true;
    sleds->next = modules;
    modules = sleds;
}

void lw_sleds_switch(enum lw_sled_state state) {
    lw_lock(&lock);
    /* Add the program's own table here, independently of the order of constructors. */
    add(&own_sleds);
    wanted = state != LW_SLEDS_OFF;
    counts = (struct lw_sleds_count){0};
    for (struct lw_sleds *sleds = modules; sleds; sleds = sleds->next)
        switch_module(sleds, state);
    let_all_see();
    lw_unlock(&lock);
}

bool lw_sleds_add_sites(void) {
    bool all = true;
    lw_lock(&lock);
    for (struct lw_sleds *sleds = modules; sleds; sleds = sleds->next)
        if (sleds->patched && !sleds->sites && sleds->begin < sleds->end)
            all &= (sleds->sites = lw_sites_make(sleds)) != NULL;
    lw_unlock(&lock);
    return all;
}

struct lw_sleds_count lw_sleds_counts(void) {
    lw_lock(&lock);
    struct lw_sleds_count now = counts;
    lw_unlock(&lock);
    return now;
}

void lw_sleds_forget(void) { wanted = false; }

void lw_sleds_hold(void) {
    lw_lock(&lock);
    lw_sites_hold();
}
void lw_sleds_let_go(void) {
    lw_sites_let_go();
    lw_unlock(&lock);
}

/* A library's constructor adds its table before its other code can run; its destructor removes the
 * table after that. */
void __leeward_sleds_add(struct lw_sleds *sleds) {
    lw_lock(&lock);
    add(sleds);
    if (wanted && sleds->known) {
        switch_module(sleds, LW_SLEDS_ON);
        let_all_see();
    }
    lw_unlock(&lock);
}

void __leeward_sleds_remove(struct lw_sleds *sleds) {
    lw_lock(&lock);
    for (struct lw_sleds **from = &modules; *from; from = &(*from)->next)
        if (*from == sleds) {
            *from = sleds->next;
            break;
        }
    sleds->known = false;
    lw_sites_forget(sleds->sites);
    sleds->sites = NULL;
    lw_unlock(&lock);
}
