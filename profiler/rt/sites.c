/* Sites: how often each function with a sled is called, and for how long.
 *
 * Calls are counted for some milliseconds at a time. Meanwhile the jump at a function's entry leads
 * to a stub of two instructions, which counts the call. So counting costs nothing at other
 * times. */
#include "sleds.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct lw_sites *all;

/* Index of sites by function address, for the clock thread. Open addressing. */
static atomic_flag index_lock = ATOMIC_FLAG_INIT;
static struct lw_site **places;
static size_t place_mask;
static bool is_indexed;
static _Atomic uint64_t watch_from = UINT64_MAX, watch_until;

/* ---- index by address ------------------------------------------------------------------------ */

static size_t place_of(uintptr_t entry) { return (size_t)((entry >> 3) * 0x9e3779b97f4a7c15u >> 20) & place_mask; }

/* Rebuilds the index. False if there is no memory for it. */
static bool make_index(void) {
    size_t sites = 0, room = 1024;
    for (const struct lw_sites *each = all; each; each = each->next)
        sites += each->gone ? 0 : each->count;
    while (room < sites * 2)
        room *= 2;
    if (places)
        munmap(places, (place_mask + 1) * sizeof *places);
    places = mmap(NULL, room * sizeof *places, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (places == MAP_FAILED) {
        places = NULL;
        return false;
    }
    place_mask = room - 1;
    for (struct lw_sites *each = all; each; each = each->next)
        for (size_t i = 0; !each->gone && i < each->count; i++) {
            struct lw_site *site = &each->sites[i];
            size_t place = place_of(site->entry);
            while (site->entry && places[place])
                place = (place + 1) & place_mask;
            if (site->entry)
                places[place] = site;
        }
    return true;
}

void lw_sites_watch(uint64_t from) {
    lw_lock(&index_lock);
    if (!is_indexed)
        is_indexed = make_index();
    lw_unlock(&index_lock);
    atomic_store(&watch_until, UINT64_MAX);
    atomic_store(&watch_from, from);
}

void lw_sites_watch_no_more(uint64_t until) { atomic_store(&watch_until, until); }

void lw_sites_saw(const struct lw_event *event) {
    if (LW_LIKELY(event->time < atomic_load_explicit(&watch_from, memory_order_relaxed)) ||
        event->time > atomic_load_explicit(&watch_until, memory_order_relaxed) || (event->first & 15) != LW_CALL)
        return;
    lw_lock(&index_lock);
    uintptr_t entry = (uintptr_t)(event->first >> 8);
    for (size_t place = place_of(entry); is_indexed && places[place]; place = (place + 1) & place_mask)
        if (places[place]->entry == entry) {
            atomic_fetch_add_explicit(&places[place]->seen, event->time - event->extra, memory_order_relaxed);
            break;
        }
    lw_unlock(&index_lock);
}

struct lw_sites *lw_sites_first(void) {
    /* Unmap the sites of unloaded modules. */
    lw_lock(&index_lock);
    for (struct lw_sites **from = &all; *from;) {
        struct lw_sites *each = *from;
        if (!each->gone) {
            from = &each->next;
            continue;
        }
        *from = each->next;
        munmap(each, each->bytes);
        is_indexed = false;
    }
    lw_unlock(&index_lock);
    return all;
}

void lw_sites_hold(void) { lw_lock(&index_lock); }
void lw_sites_let_go(void) { lw_unlock(&index_lock); }

void lw_sites_forget(struct lw_sites *sites) {
    if (sites)
        sites->gone = true;
}

#if defined(__x86_64__)

/* ---- stubs ----------------------------------------------------------------------------------- */

/* Each function has two stubs: one for its instrumented copy, one for its own body. */
#define STUB_BYTES 16u
#define SLED_BYTES 5
/* Half of a jump's reach: the other half is for the length of a module and its stubs. */
#define REACH (1ull << 30)
#define STEP (1ull << 24)

static uint8_t *at(const int32_t *field) { return (uint8_t *)field + *field; }

/* Maps memory within a jump's reach of `address`: the next free range below, otherwise above. Below
 * is preferred because an allocator's memory does not grow there. */
static uint8_t *memory_near(uintptr_t address, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = address & ~(page - 1);
    for (int up = 0; up < 2; up++)
        for (uintptr_t away = STEP + bytes; away < REACH; away += STEP) {
            uintptr_t wanted = up ? base + REACH / 2 + away / 2 : base - away;
            if (!up && away >= base)
                break;
            wanted &= ~(page - 1);
            void *got = mmap((void *)wanted, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if ((uintptr_t)got == wanted)
                return got;
            /* Kernels before 4.17 treat the address as a hint. */
            if (got != MAP_FAILED)
                munmap(got, bytes);
        }
    return NULL;
}

static void put_difference(uint8_t *into, const volatile void *to) {
    int32_t distance = (int32_t)((intptr_t)to - (intptr_t)(into + 4));
    memcpy(into, &distance, sizeof distance);
}

/* Writes `inc qword [counter]; jmp to`. Only the flags change, which have no meaning at a
 * function's entry. */
static void put_stub(uint8_t *stub, const volatile uint64_t *counter, const uint8_t *to) {
    static const uint8_t increment[] = {0x48, 0xff, 0x05};
    memcpy(stub, increment, sizeof increment);
    put_difference(stub + 3, counter);
    stub[7] = 0xe9;
    put_difference(stub + 8, to);
}

struct lw_sites *lw_sites_make(const struct lw_sleds *sleds) {
    size_t count = (size_t)(sleds->end - sleds->begin), page = (size_t)sysconf(_SC_PAGESIZE);
    size_t code = (count * 2 * STUB_BYTES + page - 1) & ~(page - 1);
    size_t head = (sizeof(struct lw_sites) + count * (sizeof(uint64_t) + sizeof(struct lw_site)) + page - 1) & ~(page - 1);
    uint8_t *memory = memory_near((uintptr_t)sleds->own, head + code);
    if (!memory)
        return NULL;
    struct lw_sites *made = (void *)memory;
    made->count = count;
    made->bytes = head + code;
    made->sites = (void *)(made + 1);
    made->counters = (void *)(made->sites + count);
    made->stubs = memory + head;
    for (size_t i = 0; i < count; i++) {
        const struct lw_sled *sled = &sleds->begin[i];
        if (sled->entry == 0)
            continue;
        const uint8_t *entry = at(&sled->entry);
        made->sites[i].entry = (uintptr_t)entry;
        made->sites[i].kept = true;
        put_stub(made->stubs + 2 * i * STUB_BYTES, &made->counters[i], at(&sled->twin));
        put_stub(made->stubs + (2 * i + 1) * STUB_BYTES, &made->counters[i], entry + SLED_BYTES);
    }
    if (mprotect(made->stubs, code, PROT_READ | PROT_EXEC) != 0) {
        munmap(memory, made->bytes);
        return NULL;
    }
    lw_lock(&index_lock);
    made->next = all;
    all = made;
    is_indexed = false;
    lw_unlock(&index_lock);
    return made;
}

const uint8_t *lw_sites_stub(const struct lw_sites *sites, size_t which, bool twin) { return sites->stubs + (2 * which + !twin) * STUB_BYTES; }

bool lw_sites_is_stub(const struct lw_sites *sites, const uint8_t *address) {
    return sites && address >= sites->stubs && address < sites->stubs + sites->count * 2 * STUB_BYTES;
}

#else

struct lw_sites *lw_sites_make(const struct lw_sleds *sleds) {
    (void)sleds;
    return NULL;
}

#endif
