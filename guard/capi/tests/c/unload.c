/* Opens the library by its path, uses it in threads that outlive dlclose, and opens it again. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <leeward.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static __typeof__(lw_gate_new) *gate_new;
static __typeof__(lw_arrive) *arrive;
static __typeof__(lw_finish) *finish;
static lw_gate *gate;
static sem_t entered, closed;

static void *run(void *of) {
    lw_arrival arrival;
    memset(&arrival, 0, sizeof arrival);
    arrival.size = sizeof arrival;
    arrival.flags = LW_ARRIVE_ENTER;
    EQUAL(LW_ADMIT, arrive(gate, &arrival, (lw_permit *)of));
    CHECK(sem_post(&entered) == 0);
    CHECK(sem_wait(&closed) == 0);
    return NULL; /* The thread's end calls the library, and ends the request. */
}

int main(int count, char **arguments) {
    lw_options options;
    lw_permit permit;
    pthread_t thread;
    CHECK(count == 2);
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    *(void **)&gate_new = dlsym(library, "lw_gate_new");
    *(void **)&arrive = dlsym(library, "lw_arrive");
    *(void **)&finish = dlsym(library, "lw_finish");
    CHECK(gate_new && arrive && finish && dlvsym(library, "lw_finish", "LEEWARD_0.1"));
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.slo_ns = 1000000000;
    EQUAL(LW_OK, gate_new(&gate, &options));
    CHECK(sem_init(&entered, 0, 0) == 0 && sem_init(&closed, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, run, &permit) == 0);
    CHECK(sem_wait(&entered) == 0);
    EQUAL(0, dlclose(library));
    CHECK(sem_post(&closed) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    EQUAL(LW_E_STATE, finish(&permit, LW_DONE));
    int status;
    pid_t pid = fork(); /* So does a fork. */
    if (pid == 0) _exit(finish(&permit, LW_DONE) == LW_E_FORKED ? 0 : 1);
    CHECK(waitpid(pid, &status, 0) == pid);
    EQUAL(0, status);
    CHECK(dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) == library);
    puts("as it should be");
    return 0;
}
