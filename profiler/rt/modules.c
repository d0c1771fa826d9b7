/* Loaded modules: addresses of their code, build-ids and paths. A reader needs these to turn
 * addresses into names. */
#include "rt.h"

#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_MODULES 512u
#define MAX_RANGES 4

struct module {
    uint64_t bias, loaded, unloaded;
    uint64_t starts[MAX_RANGES], sizes[MAX_RANGES];
    uint32_t id;
    uint8_t flags, ranges, build_id_length;
    uint8_t build_id[64];
    bool seen;
    char path[512];
};

static struct module modules[MAX_MODULES];
static uint32_t count, ids;
static unsigned long long adds, subs;
static bool looked;

/* Finds the GNU build-id among the notes of a segment. */
static void read_build_id(struct module *module, const uint8_t *notes, size_t length) {
    while (length >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, notes, sizeof note);
        size_t name = (note.n_namesz + 3u) & ~3u, description = (note.n_descsz + 3u) & ~3u;
        size_t whole = sizeof note + name + description;
        if (whole > length)
            return;
        const uint8_t *text = notes + sizeof note;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(text, "GNU", 4) == 0 &&
            note.n_descsz <= sizeof module->build_id) {
            memcpy(module->build_id, text + name, note.n_descsz);
            module->build_id_length = (uint8_t)note.n_descsz;
            return;
        }
        notes += whole;
        length -= whole;
    }
}

static void describe(struct module *module, const struct dl_phdr_info *info, bool first) {
    module->bias = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && segment->p_flags & PF_X && module->ranges < MAX_RANGES) {
            module->starts[module->ranges] = info->dlpi_addr + segment->p_vaddr;
            module->sizes[module->ranges++] = segment->p_memsz;
        } else if (segment->p_type == PT_NOTE) {
            read_build_id(module, (const uint8_t *)(info->dlpi_addr + segment->p_vaddr), segment->p_memsz);
        }
    }
    const char *name = info->dlpi_name ? info->dlpi_name : "";
    if (first) {
        module->flags = 1;
        ssize_t length = readlink("/proc/self/exe", module->path, sizeof module->path - 1);
        module->path[length > 0 ? length : 0] = '\0';
    } else if (strncmp(name, "linux-vdso", 10) == 0 || strncmp(name, "linux-gate", 10) == 0) {
        module->flags = 2;
        strcpy(module->path, "[vdso]");
    } else {
        /* The path may be relative, and the program may have another working directory when the
         * trace is read. */
        char relative[PATH_MAX], whole[PATH_MAX];
        snprintf(relative, sizeof relative, "/proc/self/cwd/%s", name);
        const char *path = name[0] != '/' && realpath(relative, whole) ? whole : name;
        strncpy(module->path, path, sizeof module->path - 1);
    }
}

struct look {
    uint64_t now;
    bool first;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct look *look = data;
    bool first = look->first;
    look->first = false;
    adds = info->dlpi_adds;
    subs = info->dlpi_subs;
    struct module fresh = {0};
    describe(&fresh, info, first);
    for (uint32_t i = 0; i < count; i++) {
        struct module *known = &modules[i];
        if (known->unloaded == 0 && known->bias == fresh.bias && known->ranges == fresh.ranges &&
            known->starts[0] == fresh.starts[0] && strcmp(known->path, fresh.path) == 0) {
            known->seen = true;
            return 0;
        }
    }
    if (count == MAX_MODULES)
        return 0;
    fresh.id = ids++;
    fresh.loaded = look->now;
    fresh.seen = true;
    modules[count++] = fresh;
    return 0;
}

static int compare_counts(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    *(bool *)data = info->dlpi_adds != adds || info->dlpi_subs != subs;
    return 1;
}

static atomic_flag looking = ATOMIC_FLAG_INIT;

void lw_modules_hold(void) { lw_lock(&looking); }
void lw_modules_let_go(void) { lw_unlock(&looking); }

static void iterate(int (*what)(struct dl_phdr_info *, size_t, void *), void *data) {
    lw_lock(&looking);
    dl_iterate_phdr(what, data);
    lw_unlock(&looking);
}

bool lw_modules_changed(uint64_t now) {
    bool changed = true;
    if (looked)
        iterate(compare_counts, &changed);
    if (!changed)
        return false;
    looked = true;
    for (uint32_t i = 0; i < count; i++)
        modules[i].seen = false;
    struct look look = {.now = now, .first = true};
    iterate(look_at, &look);
    for (uint32_t i = 0; i < count; i++)
        if (!modules[i].seen && modules[i].unloaded == 0)
            modules[i].unloaded = now;
    return true;
}

uint32_t lw_modules_encode(struct lw_payload *p, uint32_t from) {
    /* A module takes 512 bytes for its path, and about two hundred more at most. */
    uint32_t until = from;
    while (until < count && (until - from + 1) * 800u < p->room)
        until++;
    lw_put_varint(p, until - from);
    for (uint32_t i = from; i < until; i++) {
        const struct module *module = &modules[i];
        lw_put_varint(p, module->id);
        lw_put_u8(p, module->flags);
        lw_put_u64(p, module->loaded);
        lw_put_u64(p, module->unloaded);
        lw_put_u64(p, module->bias);
        lw_put_u8(p, module->ranges);
        for (int range = 0; range < module->ranges; range++) {
            lw_put_u64(p, module->starts[range]);
            lw_put_u64(p, module->sizes[range]);
        }
        lw_put_u8(p, module->build_id_length);
        lw_put_bytes(p, module->build_id, module->build_id_length);
        lw_put_text(p, module->path);
    }
    return until < count ? until : 0;
}

bool lw_modules_is_linked(void) {
    uint64_t here = (uint64_t)(uintptr_t)lw_modules_is_linked;
    for (int range = 0; count > 0 && range < modules[0].ranges; range++)
        if (here - modules[0].starts[range] < modules[0].sizes[range])
            return true;
    return false;
}

void lw_modules_reset(void) {
    looked = false;
    count = 0;
    ids = 0;
}
