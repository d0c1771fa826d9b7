/* Table of file descriptors for the run-time's own threads.
 *
 * The program closes numbers in its own table, reuses them, passes them on, and lets children
 * inherit them. A number that the run-time kept there would sooner or later name a file of the
 * program. So the control thread leaves the shared table before it opens anything. The threads that
 * it creates share the new table, and no child inherits it. */
#include "rt.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNSHARE_RANGE 2u /* CLOSE_RANGE_UNSHARE, which older headers lack */
#define NUMBERS_MOST (1u << 20)

__thread bool lw_has_own_descriptors LW_INITIAL_EXEC;

static void close_named(const char *name, void *folder) {
    int number = atoi(name);
    if (*name != '.' && number != *(int *)folder)
        close(number);
}

/* Closes all descriptors of this thread's table, which no other thread shares any more. */
static void close_all(void) {
    /* Close some first: opening the folder that lists the rest needs a free number, however low the
     * limit is. */
    unsigned number = 0;
    while (number < 64)
        close((int)number++);
    int folder = lw_open_of_thread((pid_t)syscall(SYS_gettid), "fd");
    if (folder >= 0) {
        lw_list(folder, close_named, &folder);
        close(folder);
        return;
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > NUMBERS_MOST)
        limit.rlim_cur = NUMBERS_MOST;
    while (number < limit.rlim_cur)
        close((int)number++);
}

bool lw_descriptors_unshare(void) {
#if defined(SYS_close_range)
    bool done = syscall(SYS_close_range, 0u, ~0u, UNSHARE_RANGE) == 0;
#else
    bool done = false;
#endif
    if (!done) {
        /* Before Linux 5.9, or where close_range is forbidden. */
        if (unshare(CLONE_FILES) != 0)
            return false;
        close_all();
    }
    lw_has_own_descriptors = true;
    return true;
}

void lw_leave_working_directory(void) {
    if (unshare(CLONE_FS) == 0 && chdir("/") != 0)
        lw_say("the run-time's threads stay in the working directory that the program began in");
}
