/* Control thread: starts and stops recording, obeys a signal and the socket's commands, and writes
 * blocks to disk. It exists only if LEEWARD_PROFILE is set. */
#include "pace.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define LOOK_PAUSE 5000000u
#define LINE_ROOM 8192

__thread bool lw_making_helper LW_INITIAL_EXEC;

static _Atomic bool toggle, finish_wanted, finished, apart, refused, ready, exists;
/* Incremented for each request to the control thread, which sleeps on this futex. A descriptor
 * can't wake it: the program's threads have another table of descriptors. */
static _Atomic uint32_t doorbell;
static bool as_child;
static clockid_t control_clock;
static int usual_nice;
static bool nice_known;

void lw_sleep(uint64_t nanoseconds) {
    struct timespec t = {.tv_sec = (time_t)(nanoseconds / 1000000000u), .tv_nsec = (long)(nanoseconds % 1000000000u)};
    nanosleep(&t, NULL);
}

/* ---- threads of the run-time ----------------------------------------------------------------- */

struct birth {
    const char *name;
    void *(*run)(void *);
    _Atomic bool taken;
};

static void *helper(void *argument) {
    struct birth *birth = argument;
    void *(*run)(void *) = birth->run;
    lw_self = LW_NOBODY;
    prctl(PR_SET_NAME, birth->name);
    /* The control thread has raised its priority, and the threads that it creates inherit that.
     * Only the control thread keeps it. */
    if (nice_known)
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), usual_nice);
    lw_sched_ignore_this_thread();
    atomic_store(&birth->taken, true);
    return run(NULL);
}

bool lw_helper_create(const char *name, void *(*run)(void *)) {
    struct birth birth = {.name = name, .run = run};
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256u << 10);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    lw_making_helper = true;
    int error = pthread_create(&thread, &attributes, helper, &birth);
    lw_making_helper = false;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    while (error == 0 && !atomic_load(&birth.taken))
        lw_sleep(20000);
    return error == 0;
}

/* ---- signal and socket ----------------------------------------------------------------------- */

/* Sleeps while `*word` is `value`, at most for `nanoseconds`; without a limit if that is 0. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nanoseconds) {
    struct timespec limit = {.tv_sec = (time_t)(nanoseconds / 1000000000u), .tv_nsec = (long)(nanoseconds % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nanoseconds > 0 ? &limit : NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

static void wake(void) {
    atomic_fetch_add(&doorbell, 1);
    futex_wake(&doorbell);
}

static void on_signal(int number) {
    (void)number;
    int before = errno;
    atomic_store(&toggle, true);
    wake();
    errno = before;
}

/* Installs the signal handler, unless the program has one of its own. */
static void listen_to_signal(void) {
    struct sigaction now;
    if (lw_config.signal == 0 || sigaction(lw_config.signal, NULL, &now) != 0)
        return;
    if (now.sa_handler != SIG_DFL || now.sa_flags & SA_SIGINFO)
        return;
    struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&ours.sa_mask);
    sigaction(lw_config.signal, &ours, NULL);
}

static void listen_to_signal_no_more(void) {
    struct sigaction now;
    if (lw_config.signal == 0 || sigaction(lw_config.signal, NULL, &now) != 0 || now.sa_handler != on_signal)
        return;
    now = (struct sigaction){.sa_handler = SIG_DFL};
    sigaction(lw_config.signal, &now, NULL);
}

/* Opens a socket at an abstract address, which leaves no file behind. Returns the socket, or -1. */
static int open_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "leeward-profile-%d", (int)getpid());
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return -1;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 4) == 0)
        return listener;
    close(listener);
    return -1;
}

static bool may_ask(int peer) {
    struct ucred who;
    socklen_t size = sizeof who;
    return getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && (who.uid == geteuid() || who.uid == 0);
}

/* Reads one line without its newline. False if no whole line arrives within a second. */
static bool read_line(int peer, char *line, size_t room) {
    size_t length = 0;
    uint64_t deadline = lw_now() + 1000000000u;
    while (length + 1 < room) {
        struct pollfd waiting = {.fd = peer, .events = POLLIN};
        uint64_t now = lw_now();
        if (now >= deadline || poll(&waiting, 1, (int)((deadline - now) / 1000000) + 1) <= 0)
            return false;
        ssize_t n = read(peer, line + length, room - 1 - length);
        if (n <= 0)
            return false;
        length += (size_t)n;
        line[length] = '\0';
        char *end = strchr(line, '\n');
        if (end) {
            *end = '\0';
            return true;
        }
    }
    return false;
}

static void begin(char *answer, size_t room) {
    char error[512];
    const char *wrong = lw_session_start(as_child, error, sizeof error);
    if (wrong)
        snprintf(answer, room, "error %s", wrong);
    else
        snprintf(answer, room, "ok recording %s", lw_writer_folder());
}

static void start_with(const char *options, char *answer, size_t room) {
    if (atomic_load(&lw_phase) == LW_ON) {
        snprintf(answer, room, "error recording already, to %s", lw_writer_folder());
        return;
    }
    static struct lw_config changed;
    char error[512];
    changed = lw_config;
    if (lw_config_parse(&changed, options, error, sizeof error)) {
        snprintf(answer, room, "error %s", error);
        return;
    }
    if (changed.engine != lw_config.engine) {
        snprintf(answer, room, "error the engine can't be changed any more");
        return;
    }
    lw_config = changed;
    begin(answer, room);
}

static void obey(const char *line, char *answer, size_t room) {
    if (strncmp(line, "start", 5) == 0 && (line[5] == '\0' || line[5] == ' ')) {
        start_with(line[5] ? line + 6 : "", answer, room);
    } else if (strcmp(line, "stop") == 0) {
        if (atomic_load(&lw_phase) != LW_ON) {
            snprintf(answer, room, "error not recording");
            return;
        }
        lw_session_stop(LW_END_STOPPED);
        snprintf(answer, room, "ok stopped %s", lw_writer_folder());
    } else if (strcmp(line, "status") == 0) {
        bool on = atomic_load(&lw_phase) == LW_ON;
        snprintf(answer, room, on ? "ok recording %s lost %llu" : "ok waiting", lw_writer_folder(),
                 (unsigned long long)atomic_load(&lw_lost_total));
    } else {
        snprintf(answer, room, "error no such command: start [OPTIONS], stop, status");
    }
}

/* Command from the listening thread to the control thread, and the answer. The control thread owns
 * both buffers while `asked` is 1. */
static char line[LINE_ROOM], answer[LINE_ROOM];
static _Atomic uint32_t asked;

static void serve(int peer) {
    if (!may_ask(peer)) {
        snprintf(answer, sizeof answer - 1, "error not for you");
    } else if (read_line(peer, line, sizeof line)) {
        atomic_store(&asked, 1);
        wake();
        while (atomic_load(&asked) == 1)
            futex_wait(&asked, 1, 0);
    } else {
        snprintf(answer, sizeof answer - 1, "error no whole line");
    }
    strcat(answer, "\n");
    if (send(peer, answer, strlen(answer), MSG_NOSIGNAL) < 0)
        lw_say("whoever asked is gone");
}

static int listener = -1;

static void *listens(void *unused) {
    (void)unused;
    for (;;) {
        int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0 && atomic_load(&finish_wanted))
            break;
        if (peer < 0) {
            /* For example, the program has lowered its limit of descriptors. */
            lw_sleep(100000000u);
            continue;
        }
        serve(peer);
        close(peer);
    }
    close(listener);
    return NULL;
}

/* ---- the control thread ---------------------------------------------------------------------- */

static void toggle_recording(void) {
    char said[1024];
    if (atomic_load(&lw_phase) == LW_ON) {
        lw_session_stop(LW_END_STOPPED);
        return;
    }
    begin(said, sizeof said);
    if (strncmp(said, "error", 5) == 0)
        lw_say("%s", said);
}

static void *control(void *unused) {
    (void)unused;
    bool alone = lw_descriptors_unshare();
    atomic_store(&refused, !alone);
    atomic_store(&apart, true);
    if (!alone)
        return NULL;
    lw_leave_working_directory();
    if (pthread_getcpuclockid(pthread_self(), &control_clock) != 0)
        control_clock = CLOCK_THREAD_CPUTIME_ID;
    /* Blocks that the control thread does not write in time are lost. So it raises its priority
     * where that is allowed; it does little. */
    id_t own = (id_t)syscall(SYS_gettid);
    usual_nice = getpriority(PRIO_PROCESS, own);
    nice_known = true;
    setpriority(PRIO_PROCESS, own, usual_nice < -10 ? usual_nice : -10);
    if ((listener = open_socket()) >= 0 && !lw_helper_create("leeward-listen", listens))
        close(listener);
    if (lw_config.on) {
        char error[512];
        if (lw_session_start(as_child, error, sizeof error))
            lw_say("not recording: %s", error);
    }
    atomic_store(&ready, true);
    while (!atomic_load(&finish_wanted)) {
        uint32_t rung = atomic_load(&doorbell);
        if (atomic_exchange(&toggle, false))
            toggle_recording();
        if (atomic_load(&asked) == 1) {
            obey(line, answer, sizeof answer - 1);
            atomic_store(&asked, 0);
            futex_wake(&asked);
        }
        if (atomic_load(&lw_phase) == LW_ON) {
            lw_sched_step(lw_now());
            lw_budget_step();
            if (!lw_writer_step())
                lw_session_stop(LW_END_FAILED);
        }
        if (!atomic_load(&finish_wanted))
            futex_wait(&doorbell, rung, atomic_load(&lw_phase) == LW_ON ? LOOK_PAUSE : 0);
    }
    lw_session_stop(LW_END_EXIT);
    if (listener >= 0)
        shutdown(listener, SHUT_RDWR);
    atomic_store(&finished, true);
    return NULL;
}

clockid_t lw_control_clock(void) { return control_clock; }

bool lw_control_exists(void) { return atomic_load(&exists); }

bool lw_control_is_beginning(void) { return atomic_load(&exists) && !atomic_load(&ready); }

void lw_control_leave(void) {
    if (!atomic_load(&exists) || !lw_is_recorded_process())
        return;
    bool was_on = atomic_load(&lw_phase) != LW_OFF || lw_control_is_beginning();
    lw_control_finish();
    lw_forget_process();
    listen_to_signal_no_more();
    /* A thread makes system calls also while it ends. */
    uint64_t deadline = lw_now() + 2000000000u;
    while (lw_sched_has_own_threads() && lw_now() < deadline)
        lw_sleep(50000);
    if (was_on)
        lw_say("the recording ends here: the program installs a filter of system calls, which may forbid what recording needs");
}

void lw_control_abandon(void) { atomic_store(&exists, false); }

/* Waits until the control thread sets `*word`, at most for two seconds. */
static bool await(_Atomic bool *word, uint64_t pause) {
    uint64_t deadline = lw_now() + 2000000000u;
    while (!atomic_load(word) && lw_now() < deadline)
        lw_sleep(pause);
    return atomic_load(word);
}

void lw_control_start(bool child) {
    as_child = child;
    atomic_store(&toggle, false);
    atomic_store(&asked, 0);
    atomic_store(&finish_wanted, false);
    atomic_store(&finished, false);
    atomic_store(&apart, false);
    atomic_store(&ready, false);
    /* Read this first: a command may change the options as soon as the control thread exists. */
    bool at_once = lw_config.on && !child;
    if (!lw_helper_create("leeward-control", control)) {
        lw_say("not recording: no thread could be made");
        return;
    }
    /* While the control thread still shares the program's descriptors, the program must not open or
     * close any. */
    if (!await(&apart, 20000) || atomic_load(&refused)) {
        atomic_store(&finish_wanted, true);
        lw_say("not recording: the system forbids descriptors of its own to the recording thread (close_range and unshare)");
        return;
    }
    listen_to_signal();
    atomic_store(&exists, true);
    if (at_once)
        await(&ready, 50000);
    lw_say_unsaid();
}

void lw_control_finish(void) {
    if (!atomic_load(&exists))
        return;
    atomic_store(&finish_wanted, true);
    wake();
    await(&finished, 100000);
    lw_say_unsaid();
    atomic_store(&exists, false);
}
