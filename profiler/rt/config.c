/* Parses LEEWARD_PROFILE and the options of `start`: a comma-separated list. Unknown options and
 * wrong values are errors. docs/profile-build.md lists the options. */
#include "rt.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lw_config lw_config;

/* Base of relative folders, even after the program changes its working directory. Empty if
 * unknown. */
static char working_directory[LW_PATH_ROOM];

void lw_config_default(struct lw_config *config) {
    if (!getcwd(working_directory, sizeof working_directory))
        working_directory[0] = '\0';
    *config = (struct lw_config){
        .tick = 1000,
        .overhead = 0.08,
        .threshold = 1000,
        .lock_threshold = 1000,
        .segment = 64u << 20,
        .disk = 1u << 30,
        .ring = 524288,
        .idle = 1000000000u,
        .cpu = -1,
        .signal = SIGUSR2,
        .locks = true,
        .sched = true,
        .follow = true,
        .dir = "leeward-%p.trace",
    };
}

/* Parses a time: `10us`, `1ms`, `500` (nanoseconds). False if `text` is none. */
static bool read_span(const char *text, uint64_t *into) {
    static const struct {
        const char *unit;
        uint64_t nanoseconds;
    } units[] = {{"", 1}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].unit) == 0 && number * (double)units[i].nanoseconds < 1e18) {
            *into = (uint64_t)(number * (double)units[i].nanoseconds);
            return true;
        }
    return false;
}

/* Parses a size in bytes: `64M`, `1G`, `65536`. False if `text` is none. */
static bool read_size(const char *text, uint64_t *into) {
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift)
        end++;
    if (*end != '\0' || number > (1ull << 50))
        return false;
    *into = (uint64_t)number << shift;
    return true;
}

static bool read_switch(const char *text, bool *into) {
    *into = strcmp(text, "on") == 0;
    return *into || strcmp(text, "off") == 0;
}

static bool read_signal(const char *text, int *into) {
    static const struct {
        const char *name;
        int number;
    } names[] = {{"none", 0}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"PROF", SIGPROF}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0) {
            *into = names[i].number;
            return true;
        }
    char *end;
    long number = strtol(text, &end, 10);
    *into = (int)number;
    return end != text && *end == '\0' && number > 0 && number < 64;
}

static bool read_engine(const char *text, enum lw_engine *into) {
    static const char *const names[] = {"auto", "none", "tick", "scan"};
    for (int i = 0; i < 4; i++)
        if (strcmp(text, names[i]) == 0) {
            *into = (enum lw_engine)i;
            return true;
        }
    return false;
}

/* Parses one option. False if the name is unknown (`*known` is false) or the value is wrong. */
static bool read_option(struct lw_config *config, const char *name, const char *value, bool *known) {
    *known = true;
    if (strcmp(name, "tick") == 0) {
        config->tick_follows = false;
        if (strcmp(value, "busy") == 0) {
            config->tick = 0;
            return true;
        }
        return read_span(value, &config->tick) && config->tick >= 100 && config->tick <= 1000000000;
    }
    if (strcmp(name, "overhead") == 0) {
        if (strcmp(value, "off") == 0) {
            config->overhead = 0;
            config->tick_follows = false;
            return true;
        }
        char *end;
        double percent = strtod(value, &end);
        config->overhead = percent / 100;
        config->tick_follows = true;
        return *value >= '0' && *value <= '9' && (*end == '\0' || strcmp(end, "%") == 0) && percent >= 0.1 && percent <= 100;
    }
    if (strcmp(name, "threshold") == 0)
        return read_span(value, &config->threshold);
    if (strcmp(name, "lock-threshold") == 0)
        return read_span(value, &config->lock_threshold);
    if (strcmp(name, "idle") == 0) {
        if (strcmp(value, "never") == 0) {
            config->idle = 0;
            return true;
        }
        return read_span(value, &config->idle) && config->idle >= 10000000;
    }
    if (strcmp(name, "segment") == 0)
        return read_size(value, &config->segment) && config->segment >= (256u << 10);
    if (strcmp(name, "disk") == 0)
        return read_size(value, &config->disk) && config->disk >= (1u << 20);
    if (strcmp(name, "ring") == 0) {
        uint64_t bytes;
        if (!read_size(value, &bytes) || bytes < 4096 || bytes > (256u << 20))
            return false;
        for (config->ring = 128; config->ring * 2 * sizeof(struct lw_event) <= bytes;)
            config->ring *= 2;
        return true;
    }
    if (strcmp(name, "cpu") == 0) {
        char *end;
        long number = strtol(value, &end, 10);
        config->cpu = (int)number;
        return end != value && *end == '\0' && number >= 0 && number < 1024;
    }
    if (strcmp(name, "signal") == 0)
        return read_signal(value, &config->signal);
    if (strcmp(name, "engine") == 0)
        return read_engine(value, &config->engine);
    if (strcmp(name, "locks") == 0)
        return read_switch(value, &config->locks);
    if (strcmp(name, "sched") == 0) {
        config->sched_own = strcmp(value, "own") == 0;
        if (config->sched_own)
            return config->sched = true;
        return read_switch(value, &config->sched);
    }
    if (strcmp(name, "follow") == 0)
        return read_switch(value, &config->follow);
    if (strcmp(name, "dir") == 0) {
        size_t length = strlen(value);
        if (length == 0 || length >= sizeof config->dir - 16)
            return false;
        memcpy(config->dir, value, length + 1);
        return true;
    }
    *known = false;
    return false;
}

/* Values that option `name` accepts, for error messages. They repeat the limits of read_option. */
static const char *accepted(const char *name) {
    static const struct {
        const char *name, *values;
    } options[] = {
        {"tick", "100ns to 1s, or busy"},
        {"overhead", "0.1% to 100%, or off"},
        {"threshold", "a time, such as 1us"},
        {"lock-threshold", "a time, such as 1us"},
        {"idle", "10ms or more, or never"},
        {"segment", "256K or more"},
        {"disk", "1M or more"},
        {"ring", "4K to 256M"},
        {"cpu", "0 to 1023"},
        {"signal", "USR1, USR2, PROF, none, or 1 to 63"},
        {"engine", "auto, none, tick or scan"},
        {"locks", "on or off"},
        {"sched", "on, own or off"},
        {"follow", "on or off"},
        {"dir", "a path that isn't longer than the system allows"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(name, options[i].name) == 0)
            return options[i].values;
    return "something else";
}

const char *lw_config_parse(struct lw_config *config, const char *text, char *error, size_t room) {
    char copy[8192];
    if (strlen(text) >= sizeof copy) {
        snprintf(error, room, "the options are longer than %zu bytes", sizeof copy);
        return error;
    }
    strcpy(copy, text);
    char *rest = copy;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        if (*word == '\0')
            continue;
        if (strcmp(word, "on") == 0 || strcmp(word, "1") == 0 || strcmp(word, "wait") == 0) {
            config->on = strcmp(word, "wait") != 0;
            continue;
        }
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        bool known = false;
        if (value && read_option(config, word, value, &known))
            continue;
        if (known)
            snprintf(error, room, "`%s` can't be %s (accepted: %s)", word, value, accepted(word));
        else
            snprintf(error, room, "`%s` is no option", word);
        return error;
    }
    if (config->disk < 2 * config->segment)
        config->segment = config->disk / 2;
    return NULL;
}

bool lw_config_folder(const struct lw_config *config, bool child, char *into, size_t room) {
    size_t length = 0;
    bool named = false;
    if (config->dir[0] != '/' && working_directory[0] == '\0')
        return false;
    if (config->dir[0] != '/')
        length = (size_t)snprintf(into, room, "%s/", working_directory);
    for (const char *at = config->dir; *at && length + 24 < room; at++) {
        if (at[0] == '%' && at[1] == 'p') {
            length += (size_t)snprintf(into + length, room - length, "%d", (int)getpid());
            named = true;
            at++;
        } else {
            into[length++] = *at;
        }
    }
    if (length + 24 >= LW_PATH_ROOM)
        return false;
    into[length] = '\0';
    if (child && !named)
        snprintf(into + length, room - length, "-%d", (int)getpid());
    return true;
}
