/* Installs a filter that allows a few system calls and ends the process for others: for one thread
 * (`prctl`), for all (`call`), or for all with an error instead (`errno`). Or starts itself under
 * one that forbids what recording needs (`within`), or just its own descriptor table (`old`). */
#include "harmless.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NUMBER offsetof(struct seccomp_data, nr)
#define ON(number, then) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, (then))
#define ALLOW(number) ON(number, SECCOMP_RET_ALLOW)

static void install(struct sock_filter *filter, size_t length, const char *way) {
    struct sock_fprog program = {.len = (unsigned short)length, .filter = filter};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (strcmp(way, "prctl") == 0)
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
    else
        MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

static _Atomic int started, stop;

static void *busy(void *unused) {
    started = 1;
    while (!stop)
        work(1);
    return unused;
}

static int confined(const char *way) {
    unsigned otherwise = strcmp(way, "errno") == 0 ? SECCOMP_RET_ERRNO | 1 : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter few[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_futex), ALLOW(SYS_madvise), ALLOW(SYS_munmap),
        ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_newfstatat), ALLOW(SYS_fstat), ALLOW(SYS_set_robust_list),
        BPF_STMT(BPF_RET | BPF_K, otherwise),
    };
    pthread_t thread;
    pthread_create(&thread, NULL, busy, NULL);
    /* A thread that has not reached its function yet makes calls that the filter forbids. */
    while (!started)
        usleep(1000);
    work(100);
    toggle();
    install(few, sizeof few / sizeof *few, way);
    work(300);
    stop = 1;
    pthread_join(thread, NULL);
    work(100);
    return verdict();
}

/* Starts this program under a filter, which applies from the first instruction. */
static int within(char *self, const char *way) {
    bool old = strcmp(way, "old") == 0;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        ON(SYS_close_range, SECCOMP_RET_ERRNO | ENOSYS),
        ON(old ? 0xffff : SYS_perf_event_open, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install(filter, sizeof filter / sizeof *filter, "prctl");
    execl(self, self, "plain", NULL);
    return 1;
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "prctl";
    if (strcmp(way, "within") == 0 || strcmp(way, "old") == 0)
        return within(arguments[0], way);
    if (strcmp(way, "plain") == 0) {
        work(300);
        return verdict();
    }
    return confined(way);
}
