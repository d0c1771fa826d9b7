/* Files about one thread: always those of /proc/TID, never of /proc/PID/task/TID, where /proc/thread-self leads, too. When a process ends, the
 * kernel forgets the names that were looked up: each thread those below its own folder, and whoever reaps the process all below /proc/PID. If a
 * thread has come to that point and has lost its CPU, the one who reaps spins until it goes on: a server that reaped its children stood still
 * for seconds. What is below /proc/TID concerns that thread alone, however the process ends. */
#include "rt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The process whose ids /proc has, negative if it has others: that of another namespace, where our ids are somebody else's. */
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
