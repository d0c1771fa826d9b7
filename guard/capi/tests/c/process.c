/* A program that forks, closes all descriptors, changes its folder and drops its privileges. */
#define _GNU_SOURCE
#include "check.h"

#include <leeward.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static lw_gate *gate;
static lw_mutex mutex = LW_MUTEX_INIT("process: mutex");
static int stop;

static lw_gate *new_gate(void) {
    lw_options options;
    lw_gate *of;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.slo_ns = 1000000000;
    EQUAL(LW_OK, lw_gate_new(&of, &options));
    return of;
}

static int admits(lw_gate *of) {
    lw_arrival arrival;
    lw_permit permit;
    memset(&arrival, 0, sizeof arrival);
    arrival.size = sizeof arrival;
    int decided = lw_arrive(of, &arrival, &permit);
    if (decided == LW_ADMIT) EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    return decided;
}

static void *use(void *of) {
    static char text[1 << 16];
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        EQUAL(LW_ADMIT, admits(gate));
        if (of) CHECK(lw_stats_json(gate, text, sizeof text) > 0);
    }
    return NULL;
}

static void child(const lw_permit *parents) {
    char text[64];
    EQUAL(LW_E_FORKED, admits(gate));
    EQUAL(LW_E_FORKED, lw_finish(parents, LW_DONE));
    EQUAL(LW_E_FORKED, lw_stats_json(gate, text, sizeof text));
    EQUAL(LW_E_FORKED, lw_gate_free(gate));
    EQUAL(LW_E_FORKED, lw_admin_listen(gate, "127.0.0.1:0", NULL));
    lw_gate *own = new_gate(); /* A gate of its own, and a lock. */
    EQUAL(LW_ADMIT, admits(own));
    lw_arrival arrival; /* The thread that forked ran a request of the parent's. */
    lw_permit permit;
    memset(&arrival, 0, sizeof arrival);
    arrival.size = sizeof arrival;
    arrival.flags = LW_ARRIVE_ENTER;
    EQUAL(LW_ADMIT, lw_arrive(own, &arrival, &permit));
    EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    EQUAL(LW_OK, lw_mutex_lock(&mutex));
    EQUAL(LW_OK, lw_mutex_unlock(&mutex));
    EQUAL(LW_OK, lw_gate_free(own));
    _exit(0);
}

int main(void) {
    pthread_t users[2];
    lw_arrival arrival;
    lw_permit permit;
    uint16_t port;
    gate = new_gate();
    EQUAL(LW_OK, lw_admin_listen(gate, "127.0.0.1:0", &port));
    CHECK(port != 0);
    EQUAL(LW_E_BUSY, lw_admin_listen(gate, "127.0.0.1:0", NULL));
    EQUAL(LW_OK, lw_mutex_lock(&mutex));
    EQUAL(LW_OK, lw_mutex_unlock(&mutex));
    memset(&arrival, 0, sizeof arrival);
    arrival.size = sizeof arrival;
    EQUAL(LW_ADMIT, lw_arrive(gate, &arrival, &permit));
    EQUAL(LW_OK, lw_enter(&permit));
    for (long i = 0; i < 2; i++) CHECK(pthread_create(&users[i], NULL, use, (void *)i) == 0);
    for (int i = 0; i < 30; i++) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child(&permit);
        CHECK(waitpid(pid, &status, 0) == pid);
        EQUAL(0, status);
    }
    EQUAL(LW_ADMIT, admits(gate)); /* The parent's gate goes on. */
    CHECK(chdir("/") == 0);
    if (getuid() == 0) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    for (int fd = 3; fd < 1024; fd++) close(fd); /* The admin port's, too: it ends or fails quietly. */
    usleep(50000);
    EQUAL(LW_ADMIT, admits(gate));
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(users[i], NULL) == 0);
    EQUAL(LW_OK, lw_finish(&permit, LW_ABANDONED));
    puts("as it should be");
    return 0;
}
