/* Reaps children while threads compete for its CPU. Reaping an ended or killed child must cost
 * almost no CPU time. The kernel lets a reaper spin for child threads that looked themselves up
 * below /proc/PID (thread-self, task/TID). So this program watches what the run-time opens. */
#define _GNU_SOURCE
#include "harmless.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define CHILDREN 40

/* Paths that all processes opened. */
static struct {
    atomic_int of_proc, of_threads;
    char path[256];
} *opened;
static atomic_int over;

/* The run-time, linked or preloaded, opens files by this function. */
int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    if (opened && strncmp(path, "/proc/", 6) == 0) {
        atomic_fetch_add(&opened->of_proc, 1);
        if ((strstr(path, "/task/") || strstr(path, "/thread-self") || strcmp(path, "/proc/self/task") == 0) &&
            atomic_fetch_add(&opened->of_threads, 1) == 0)
            snprintf(opened->path, sizeof opened->path, "%s", path);
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void *spins(void *unused) {
    while (!atomic_load(&over))
        work_once();
    return unused;
}

static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* CPU time, in milliseconds, of reaping a child that has ended. */
static double reap(int number) {
    pid_t child = fork();
    if (child == 0) {
        usleep(10000);
        if (number % 2)
            raise(SIGKILL);
        _exit(0);
    }
    siginfo_t about;
    int status = 1;
    MUST(waitid(P_PID, (id_t)child, &about, WEXITED | WNOWAIT) == 0);
    double before = used();
    MUST(waitpid(child, &status, 0) == child);
    double took = used() - before;
    MUST(number % 2 ? WIFSIGNALED(status) : WIFEXITED(status));
    return took;
}

int main(void) {
    void *memory = mmap(NULL, sizeof *opened, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    opened = memory;
    toggle();
    cpu_set_t before, one;
    CPU_ZERO(&one);
    MUST(sched_getaffinity(0, sizeof before, &before) == 0);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    MUST(sched_setaffinity(0, sizeof one, &one) == 0);
    pthread_t beside[2];
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&beside[i], NULL, spins, NULL) == 0);
    int dear = 0;
    for (int i = 0; i < CHILDREN; i++)
        dear += reap(i) > 1;
    atomic_store(&over, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(beside[i], NULL);
    /* Usual is 1/40 ms; now and then a pause of the virtual machine counts as CPU time. */
    if (dear > CHILDREN / 10)
        printf("wrong: %d of %d times it took more than a millisecond of CPU time\n", dear, CHILDREN), wrong++;
    if (atomic_load(&opened->of_threads) > 0)
        printf("wrong: %d times such as %s\n", atomic_load(&opened->of_threads), opened->path), wrong++;
    const char *options = getenv("LEEWARD_PROFILE");
    MUST(!options || strncmp(options, "on,signal", 9) != 0 || atomic_load(&opened->of_proc) > 0);
    return verdict();
}
