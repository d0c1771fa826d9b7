/* Files about one thread, always of /proc/TID, never of /proc/PID/task/TID, to which
 * /proc/thread-self leads, too.
 *
 * When a process ends, the kernel discards the names that were looked up. Each ending thread
 * discards those below its own folder. The process that reaps the ended one discards all below
 * /proc/PID. If a thread has lost its CPU at that point, the reaping process spins until the thread
 * continues. For example, a server that reaped its children stalled for seconds. Names below
 * /proc/TID concern that thread alone, however the process ends. */
#include "rt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Process whose ids /proc shows. Negative if /proc belongs to another namespace, in which this
 * process's ids mean other processes. */
static _Atomic pid_t known;

static bool has_our_ids(void) {
    pid_t process = getpid(), before = atomic_load(&known);
    if (before == process || before == -process)
        return before == process;
    char text[32] = "";
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    if (read(file, text, sizeof text - 1) < 0)
        text[0] = '\0';
    close(file);
    bool ours = atoi(text) == process;
    atomic_store(&known, ours ? process : -process);
    return ours;
}

int lw_open_of_thread(pid_t tid, const char *name) {
    char path[64];
    if (!has_our_ids()) {
        errno = ENOENT;
        return -1;
    }
    snprintf(path, sizeof path, "/proc/%d/%s", (int)tid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}
