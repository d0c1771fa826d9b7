/* Wrong uses of the interface: each is an error code. Also the right ones beside them. */
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <leeward.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static lw_options options(void) {
    lw_options of;
    memset(&of, 0, sizeof of);
    of.size = sizeof of;
    of.slo_ns = 1000000000;
    of.threads = 2;
    return of;
}

static lw_arrival arrival(void) {
    lw_arrival of;
    memset(&of, 0, sizeof of);
    of.size = sizeof of;
    return of;
}

static int messages;

static void log_message(void *user, int level, const char *message) {
    CHECK(user == &messages && level >= LW_LOG_ERROR && level <= LW_LOG_INFO && message[0]);
    CHECK(lw_version() > 0); /* A function may call the library. */
    messages++;
}

static void wrong_gates(void) {
    lw_options of = options();
    lw_gate *gate = (lw_gate *)&of;
    EQUAL(LW_E_ARGUMENT, lw_gate_new(NULL, &of));
    EQUAL(LW_E_ARGUMENT, lw_gate_new(&gate, NULL));
    CHECK(gate == NULL);
    of.size = 0;
    EQUAL(LW_E_SIZE, lw_gate_new(&gate, &of));
    of.size = 1 << 30;
    EQUAL(LW_E_SIZE, lw_gate_new(&gate, &of));
    EQUAL(LW_OK, lw_log_set(log_message, &messages));
    of = options();
    of.slo_ns = 0;
    EQUAL(LW_E_ARGUMENT, lw_gate_new(&gate, &of));
    of = options();
    of.controller = "none such";
    EQUAL(LW_E_ARGUMENT, lw_gate_new(&gate, &of));
    of.controller = "\xff";
    EQUAL(LW_E_ARGUMENT, lw_gate_new(&gate, &of));
    EQUAL(3, messages);
    of = options();
    lw_gate *gates[80];
    int open = 0;
    while (lw_gate_new(&gates[open], &of) == LW_OK) open++;
    EQUAL(64, open);
    EQUAL(LW_E_LIMIT, lw_gate_new(&gate, &of));
    EQUAL(3 + 64, messages);
    while (open > 0) EQUAL(LW_OK, lw_gate_free(gates[--open]));
    EQUAL(LW_E_CLOSED, lw_gate_free(gates[0]));
    EQUAL(LW_OK, lw_log_set(NULL, NULL));
    EQUAL(LW_E_ARGUMENT, lw_gate_free(NULL));
    EQUAL(LW_E_ARGUMENT, lw_gate_free((lw_gate *)&of));
    EQUAL(LW_E_ARGUMENT, lw_gate_free((lw_gate *)1));
    CHECK(lw_gate_delay_ns(NULL) == 0);
}

static void *finish_elsewhere(void *of) {
    return (void *)(long)lw_finish((lw_permit *)of, LW_DONE);
}

static long in_a_thread(void *(*function)(void *), void *of) {
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, function, of) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    return (long)result;
}

static void wrong_permits(lw_gate *gate) {
    lw_arrival of = arrival();
    lw_permit permit, other;
    EQUAL(LW_E_ARGUMENT, lw_arrive(NULL, &of, &permit));
    EQUAL(LW_E_ARGUMENT, lw_arrive(gate, NULL, &permit));
    EQUAL(LW_E_ARGUMENT, lw_arrive(gate, &of, NULL));
    of.flags = 8;
    EQUAL(LW_E_ARGUMENT, lw_arrive(gate, &of, &permit));
    of = arrival();
    of.klass = 200;
    EQUAL(LW_E_ARGUMENT, lw_arrive(gate, &of, &permit));
    of = arrival();
    of.reserved2 = 1;
    EQUAL(LW_E_ARGUMENT, lw_arrive(gate, &of, &permit));
    of.size = 48; /* A caller of the first version. */
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit));
    EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    of = arrival();
    of.size = 12;
    EQUAL(LW_E_SIZE, lw_arrive(gate, &of, &permit));
    EQUAL(LW_E_STATE, lw_finish(&permit, LW_DONE)); /* After an error there is no permit. */
    of = arrival();
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit));
    EQUAL(LW_E_ARGUMENT, lw_finish(NULL, LW_DONE));
    EQUAL(LW_E_ARGUMENT, lw_finish(&permit, 77));
    EQUAL(LW_E_BUSY, lw_gate_free(gate));
    other = permit;
    EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    EQUAL(LW_E_STATE, lw_finish(&permit, LW_DONE));
    EQUAL(LW_E_STATE, lw_finish(&other, LW_DONE));
    EQUAL(LW_E_STATE, lw_enter(&permit));
    EQUAL(LW_E_STATE, lw_leave(&permit));
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit)); /* The same slot, another number. */
    EQUAL(LW_E_STATE, lw_finish(&other, LW_DONE));
    EQUAL(LW_OK, lw_enter(&permit));
    EQUAL(LW_E_STATE, lw_enter(&permit));
    of.flags = LW_ARRIVE_ENTER;
    lw_gate *second;
    lw_options settings = options();
    EQUAL(LW_OK, lw_gate_new(&second, &settings));
    EQUAL(LW_E_STATE, lw_arrive(second, &of, &other)); /* This thread runs one. */
    EQUAL(LW_OK, lw_gate_free(second));
    EQUAL(LW_E_STATE, in_a_thread(finish_elsewhere, &permit));
    CHECK(lw_budget_left_ns() < LW_UNLIMITED);
    EQUAL(LW_OK, lw_leave(&permit));
    CHECK(lw_budget_left_ns() == LW_UNLIMITED);
    EQUAL(LW_E_STATE, lw_leave(&permit));
    EQUAL(LW_OK, in_a_thread(finish_elsewhere, &permit));
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit));
    lw_note_wait(1);
    EQUAL(LW_OK, lw_finish(&permit, LW_FAILED)); /* Leaves it, too. */
    CHECK(lw_budget_left_ns() == LW_UNLIMITED);
    memset(&permit, 0xa5, sizeof permit);
    EQUAL(LW_E_STATE, lw_finish(&permit, LW_DONE));
}

static void count_message(void *user, int level, const char *message) {
    CHECK(level == LW_LOG_WARNING && strstr(message, "lw_finish"));
    ++*(int *)user;
}

/* A thread that forgets the end of a request stays protected, and hears of it. */
static void forgotten_requests(void) {
    lw_options settings = options();
    lw_arrival of = arrival();
    lw_permit permits[4], waiting;
    lw_gate *gate;
    char text[1 << 14];
    int messages_of = 0;
    EQUAL(LW_OK, lw_gate_new(&gate, &settings));
    EQUAL(LW_OK, lw_log_set(count_message, &messages_of));
    of.flags = LW_ARRIVE_ENTER;
    for (int i = 0; i < 4; i++) EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permits[i]));
    of.waited_ns = 2000000000;
    EQUAL(LW_REJECT, lw_arrive(gate, &of, &waiting)); /* Two seconds old, of one. */
    for (int i = 0; i < 4; i++) EQUAL(LW_E_STATE, lw_finish(&permits[i], LW_DONE));
    CHECK(lw_budget_left_ns() == LW_UNLIMITED);
    of = arrival();
    of.flags = LW_ARRIVE_ENTER;
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permits[0]));
    of.flags = 0;
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &waiting));
    EQUAL(LW_E_STATE, lw_enter(&permits[1])); /* It has ended, and ends no other. */
    EQUAL(LW_E_STATE, lw_enter(&permits[0]));
    EQUAL(LW_OK, lw_enter(&waiting));
    EQUAL(LW_E_STATE, lw_finish(&permits[0], LW_DONE));
    EQUAL(LW_OK, lw_finish(&waiting, LW_DONE));
    EQUAL(1, messages_of);
    CHECK(lw_stats_json(gate, text, sizeof text) > 0);
    CHECK(strstr(text, "\"abandoned\":5,") && strstr(text, "\"completed\":1,") && strstr(text, "\"in_flight\":0,"));
    EQUAL(LW_OK, lw_log_set(NULL, NULL));
    EQUAL(LW_OK, lw_gate_free(gate));
}

static void *enter_and_exit(void *of) {
    pthread_exit((void *)(long)lw_enter((lw_permit *)of));
}

#if !defined(__SANITIZE_ADDRESS__) /* It reports the end of any cancelled thread. */
static int has_entered;

static void *enter_and_wait(void *of) {
    EQUAL(LW_OK, lw_enter((lw_permit *)of));
    __atomic_store_n(&has_entered, 1, __ATOMIC_RELEASE);
    for (;;) pause();
}
#endif

static void *enter_and_leave(void *of) {
    EQUAL(LW_OK, lw_enter((lw_permit *)of));
    return (void *)(long)lw_leave((lw_permit *)of);
}

/* Threads that end within a request, of a gate with four places: the request ends with them. */
static void threads_that_end_within_a_request(void) {
    lw_options settings = options();
    lw_arrival of = arrival();
    lw_permit permit;
    lw_gate *gate;
    char text[1 << 14];
    int messages_of = 0, ended = 0;
    settings.max_in_flight = 4;
    EQUAL(LW_OK, lw_gate_new(&gate, &settings));
    EQUAL(LW_OK, lw_log_set(count_message, &messages_of));
    for (; ended < 20; ended++) {
        EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit));
        EQUAL(LW_OK, in_a_thread(enter_and_exit, &permit));
        EQUAL(LW_E_STATE, in_a_thread(finish_elsewhere, &permit));
        EQUAL(LW_E_STATE, lw_enter(&permit));
    }
#if !defined(__SANITIZE_ADDRESS__)
    for (; ended < 40; ended++) {
        pthread_t thread;
        void *result;
        has_entered = 0;
        EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit));
        CHECK(pthread_create(&thread, NULL, enter_and_wait, &permit) == 0);
        while (!__atomic_load_n(&has_entered, __ATOMIC_ACQUIRE)) usleep(100);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
        EQUAL(LW_E_STATE, lw_finish(&permit, LW_DONE));
    }
#endif
    CHECK(messages_of == 0); /* A thread at its end calls nothing of the program's. */
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit));
    EQUAL(LW_OK, in_a_thread(enter_and_leave, &permit)); /* This one is for another thread. */
    EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    CHECK(lw_stats_json(gate, text, sizeof text) > 0);
    char abandoned[32];
    snprintf(abandoned, sizeof abandoned, "\"abandoned\":%d,", ended);
    CHECK(strstr(text, abandoned) && strstr(text, "\"completed\":1,") && strstr(text, "\"in_flight\":0,"));
    EQUAL(LW_OK, lw_log_set(NULL, NULL));
    EQUAL(LW_OK, lw_gate_free(gate));
}

static void rejections(lw_gate *gate) {
    lw_arrival of = arrival();
    lw_permit permit;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    lw_stamp old;
    memset(&old, 0, sizeof old);
    of.stamp = &old;
    old.received_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - 2000000000u;
    EQUAL(LW_REJECT, lw_arrive(gate, &of, &permit)); /* Two seconds old, of one. */
    EQUAL(LW_R_LATE, permit.reason);
    CHECK(permit.id == 0 && permit.decision != 0 && permit.retry_after_ns >= 2000000000u);
    CHECK(strcmp(lw_reason_name(permit.reason), "late") == 0);
    char small[8], text[4096];
    int length = lw_explain(gate, permit.decision, text, sizeof text);
    CHECK(length > 20 && (size_t)length == strlen(text) && strstr(text, "ejected"));
    EQUAL(length, lw_explain(gate, permit.decision, small, sizeof small));
    EQUAL(7, strlen(small));
    EQUAL(length, lw_explain(gate, permit.decision, NULL, 0));
    EQUAL(LW_E_ARGUMENT, lw_explain(gate, permit.decision, NULL, 5));
    EQUAL(LW_E_ARGUMENT, lw_explain(gate, 1u << 30, text, sizeof text));
    EQUAL(LW_E_STATE, lw_finish(&permit, LW_REJECTED));
    of = arrival();
    of.waited_ns = 2000000000;
    EQUAL(LW_REJECT, lw_arrive(gate, &of, &permit));
    of = arrival();
    of.left_ns = 1;
    of.waited_ns = 1000;
    EQUAL(LW_REJECT, lw_arrive(gate, &of, &permit));
    EQUAL(LW_R_DEADLINE, permit.reason);
    EQUAL(LW_OK, lw_route_name(gate, 3, "get"));
    messages = 0;
    EQUAL(LW_OK, lw_log_set(log_message, &messages));
    const char *wrong[] = {"", "nonsense", "127.0.0.1", "127.0.0.1:99999", "\xff:80", NULL};
    errno = EINTR;
    for (int i = 0; i < 6; i++) EQUAL(LW_E_ARGUMENT, lw_admin_listen(gate, wrong[i], NULL));
    CHECK(errno == EINTR);
    EQUAL(6, messages);
    EQUAL(LW_E_SYSTEM, lw_admin_listen(gate, "192.0.2.1:80", NULL)); /* No address of a machine. */
    CHECK(errno == EADDRNOTAVAIL);
    EQUAL(LW_E_SYSTEM, lw_admin_listen(gate, "x y:80", NULL));
    CHECK(errno == 0);
    EQUAL(LW_E_ARGUMENT, lw_route_name(gate, 3, NULL));
    EQUAL(LW_E_ARGUMENT, lw_route_name(gate, 3, ""));
    EQUAL(LW_E_ARGUMENT, lw_route_name(gate, 3, "\xff"));
    EQUAL(11, messages);
    EQUAL(LW_OK, lw_log_set(NULL, NULL));
    EQUAL(LW_OK, lw_admin_listen(gate, "127.0.0.1:0", NULL));
    EQUAL(LW_E_BUSY, lw_admin_listen(gate, "127.0.0.1:0", NULL));
    CHECK(strstr(lw_strerror(LW_E_BUSY), "admin port"));
    length = lw_stats_json(gate, text, sizeof text);
    CHECK(length > 100 && text[0] == '{' && strstr(text, "\"slo_ns\":1000000000"));
    CHECK(strcmp(lw_strerror(LW_E_STATE), lw_strerror(-99)) != 0);
}

static void *lock_elsewhere(void *of) {
    return (void *)(long)lw_mutex_lock_within((lw_mutex *)of);
}

static void locks(lw_gate *gate) {
    static lw_mutex mutex = LW_MUTEX_INIT("abuse: mutex");
    EQUAL(LW_E_ARGUMENT, lw_mutex_lock(NULL));
    EQUAL(LW_E_STATE, lw_mutex_unlock(&mutex));
    EQUAL(LW_OK, lw_mutex_lock(&mutex));
    EQUAL(LW_E_DEADLOCK, lw_mutex_lock(&mutex));
    EQUAL(LW_E_BUSY, lw_mutex_trylock(&mutex));
    EQUAL(LW_E_BUSY, lw_mutex_destroy(&mutex));
    lw_arrival of = arrival();
    of.flags = LW_ARRIVE_ENTER;
    lw_permit permit;
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit));
    lw_note_wait(2000000000); /* No budget is left, but this thread holds the lock. */
    CHECK(lw_budget_left_ns() == 0);
    EQUAL(LW_E_DEADLOCK, lw_mutex_lock_within(&mutex));
    EQUAL(LW_OK, lw_finish(&permit, LW_REJECTED));
    EQUAL(LW_OK, lw_mutex_unlock(&mutex));
    EQUAL(LW_OK, in_a_thread(lock_elsewhere, &mutex));
    EQUAL(LW_E_STATE, lw_mutex_unlock(&mutex)); /* Its holder has ended. */
    EQUAL(LW_ADMIT, lw_arrive(gate, &of, &permit));
    lw_note_wait(2000000000);
    EQUAL(LW_E_CONGESTED, lw_mutex_lock_within(&mutex));
    EQUAL(LW_OK, lw_finish(&permit, LW_REJECTED));
    CHECK(lw_mutex_delay_ns(&mutex) == 0);

    lw_rwlock table = LW_RWLOCK_INIT("abuse: table");
    EQUAL(LW_E_STATE, lw_rwlock_unlock(&table));
    EQUAL(LW_OK, lw_rwlock_read(&table));
    EQUAL(LW_OK, lw_rwlock_tryread(&table));
    EQUAL(LW_E_BUSY, lw_rwlock_trywrite(&table));
    EQUAL(LW_OK, lw_rwlock_unlock(&table));
    EQUAL(LW_OK, lw_rwlock_unlock(&table));
    EQUAL(LW_E_STATE, lw_rwlock_unlock(&table));
    EQUAL(LW_OK, lw_rwlock_write_within(&table));
    EQUAL(LW_E_DEADLOCK, lw_rwlock_read_within(&table));
    EQUAL(LW_OK, lw_rwlock_unlock(&table));
    EQUAL(LW_OK, lw_rwlock_destroy(&table));
    EQUAL(LW_E_STATE, lw_rwlock_write(&table));
    EQUAL(LW_E_STATE, lw_rwlock_destroy(&table));

    lw_sem disks = LW_SEM_INIT("abuse: disks", 2);
    EQUAL(LW_E_STATE, lw_sem_post(&disks));
    EQUAL(LW_OK, lw_sem_wait(&disks));
    EQUAL(LW_OK, lw_sem_wait_within(&disks));
    EQUAL(LW_E_BUSY, lw_sem_trywait(&disks));
    EQUAL(LW_OK, lw_sem_post(&disks));
    EQUAL(LW_OK, lw_sem_post(&disks));
    EQUAL(LW_OK, lw_sem_destroy(&disks));
    lw_sem none = LW_SEM_INIT("abuse: none", 0);
    EQUAL(LW_E_ARGUMENT, lw_sem_wait(&none));
    EQUAL(LW_E_ARGUMENT, lw_sem_init(&none, "abuse: none", 0));
    EQUAL(LW_E_ARGUMENT, lw_sem_init(&none, "\xff", 1));
    EQUAL(LW_E_ARGUMENT, lw_mutex_init(&mutex, "\xff"));
    EQUAL(LW_E_ARGUMENT, lw_rwlock_init(&table, "\xff"));
}

static pthread_key_t key;
static lw_gate *key_gate;

/* Runs after the library's part of the thread's end: the thread can take up no other request. */
static void at_the_end(void *of) {
    lw_arrival last = arrival();
    last.flags = LW_ARRIVE_ENTER;
    *(int *)of = lw_arrive(key_gate, &last, &(lw_permit){0});
}

static void *end_with_a_request(void *result) {
    lw_arrival of = arrival();
    lw_permit permit;
    of.flags = LW_ARRIVE_ENTER;
    EQUAL(LW_ADMIT, lw_arrive(key_gate, &of, &permit));
    EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    CHECK(pthread_setspecific(key, result) == 0);
    return NULL;
}

static void requests_of_ending_threads(lw_gate *gate) {
    int result = 0;
    key_gate = gate;
    CHECK(pthread_key_create(&key, at_the_end) == 0);
    in_a_thread(end_with_a_request, &result);
    EQUAL(LW_E_STATE, result);
    CHECK(pthread_key_delete(key) == 0);
}

/* Three threads take requests from a queue of the program's: the gate sees how old they are. */
static void queue_of_the_program(void) {
    lw_options of = options();
    lw_arrival now = arrival();
    lw_permit waiting[3], permit;
    lw_gate *gate;
    of.slo_ns = 20000000;
    EQUAL(LW_OK, lw_gate_new(&gate, &of));
    for (int i = 0; i < 3; i++) EQUAL(LW_ADMIT, lw_arrive(gate, &now, &waiting[i]));
    EQUAL(0, lw_gate_delay_ns(gate)); /* No thread has taken one up yet. */
    usleep(15000);
    EQUAL(LW_OK, lw_enter(&waiting[0]));
    uint64_t delay = lw_gate_delay_ns(gate);
    CHECK(delay >= 15000000 && lw_budget_left_ns() <= 5000000);
    EQUAL(LW_OK, lw_leave(&waiting[0]));
    usleep(15000); /* No thread takes up another one. */
    CHECK(lw_gate_delay_ns(gate) >= delay + 15000000);
    EQUAL(LW_REJECT, lw_arrive(gate, &now, &permit));
    EQUAL(LW_OK, lw_enter(&waiting[1]));
    EQUAL(LW_OK, lw_finish(&waiting[1], LW_DONE));
    EQUAL(LW_OK, lw_finish(&waiting[2], LW_ABANDONED)); /* Which waits no more. */
    EQUAL(0, lw_gate_delay_ns(gate));
    EQUAL(LW_OK, lw_enter(&waiting[0])); /* Not the first time, so this was no wait for a thread. */
    EQUAL(0, lw_gate_delay_ns(gate));
    EQUAL(LW_OK, lw_finish(&waiting[0], LW_DONE));
    of.slo_ns = 300000000000; /* A wait of ten minutes is one, too. */
    lw_gate *patient;
    EQUAL(LW_OK, lw_gate_new(&patient, &of));
    now.waited_ns = 600000000000;
    EQUAL(LW_REJECT, lw_arrive(patient, &now, &permit));
    EQUAL(LW_OK, lw_gate_free(patient));
    EQUAL(LW_OK, lw_gate_free(gate));
}

/* Descriptors that a peer passes are not left open. */
static void passed_descriptors(void) {
    int ends[2], next, after;
    char byte = 'x', read[4];
    lw_stamp stamp;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(6 * sizeof(int))];
    } control;
    struct iovec part = {&byte, 1};
    struct msghdr message;
    memset(&stamp, 0, sizeof stamp);
    memset(&message, 0, sizeof message);
    memset(&control, 0, sizeof control);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(6 * sizeof(int));
    for (int i = 0; i < 6; i++) ((int *)CMSG_DATA(&control.header))[i] = ends[0];
    CHECK((next = dup(0)) >= 0 && close(next) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(sendmsg(ends[1], &message, 0) == 1);
        EQUAL(1, lw_recv(ends[0], read, sizeof read, 0, i == 0 ? NULL : &stamp));
    }
    CHECK((after = dup(0)) >= 0 && close(after) == 0);
    EQUAL(next, after);
    close(ends[0]);
    close(ends[1]);
}

static void stamps(void) {
    int ends[2];
    char byte = 'x', read[4];
    lw_stamp stamp;
    memset(&stamp, 0, sizeof stamp);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    EQUAL(LW_E_SYSTEM, lw_stamp_enable(ends[0]));
    CHECK(errno == EOPNOTSUPP); /* Nothing would be stamped. */
    EQUAL(LW_E_SYSTEM, lw_stamp_enable(-1));
    CHECK(send(ends[1], &byte, 1, 0) == 1);
    EQUAL(1, lw_recv(ends[0], read, sizeof read, 0, &stamp));
    CHECK(read[0] == 'x' && stamp.filled == 0);
    CHECK(send(ends[1], &byte, 1, 0) == 1);
    EQUAL(1, lw_recv(ends[0], read, 1, 0, &stamp));
    CHECK(stamp.filled == 1);
    EQUAL(-1, lw_recv(ends[0], read, 1, MSG_DONTWAIT, NULL));
    errno = 0;
    EQUAL(-1, lw_recv(ends[0], read, 1, MSG_DONTWAIT, &stamp));
    CHECK(errno == EAGAIN && stamp.filled == 0);
    EQUAL(-1, lw_recv(-1, read, 1, 0, &stamp));
    EQUAL(LW_E_ARGUMENT, lw_stamp_note(&stamp, NULL, false));
    close(ends[1]);
    EQUAL(0, lw_recv(ends[0], read, 1, 0, &stamp));
    close(ends[0]);
}

/* A connection over loopback, whose end `[0]` has stamps. */
static void connection(int ends[2]) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EQUAL(LW_OK, lw_stamp_enable(listening));
    CHECK(bind(listening, (struct sockaddr *)&address, sizeof address) == 0 && listen(listening, 1) == 0);
    CHECK(getsockname(listening, (struct sockaddr *)&address, &length) == 0);
    CHECK((ends[1] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(connect(ends[1], (struct sockaddr *)&address, sizeof address) == 0);
    CHECK((ends[0] = accept(listening, NULL, NULL)) >= 0);
    close(listening);
}

/* A connection whose requests, a byte each, have stamps. */
struct stamped {
    lw_gate *gate;
    lw_stamp stamp;
    lw_arrival now;
    int ends[2];
};

static void stamped_begin(struct stamped *of) {
    lw_options settings = options();
    settings.slo_ns = 500000000;
    memset(&of->stamp, 0, sizeof of->stamp);
    of->now = arrival();
    of->now.stamp = &of->stamp;
    EQUAL(LW_OK, lw_gate_new(&of->gate, &settings));
    connection(of->ends);
}

static void stamped_ask(struct stamped *of, const char *requests) {
    CHECK(send(of->ends[1], requests, strlen(requests), 0) == (ssize_t)strlen(requests));
}

/* One read brings so many requests. */
static void stamped_read(struct stamped *of, ssize_t count) {
    char read[16];
    EQUAL(count, lw_recv(of->ends[0], read, sizeof read, 0, &of->stamp));
}

static void stamped_serve(struct stamped *of, ssize_t count) {
    lw_permit permit;
    stamped_read(of, count);
    for (; count > 0; count--) {
        EQUAL(LW_ADMIT, lw_arrive(of->gate, &of->now, &permit));
        EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    }
}

static void stamped_end(struct stamped *of) {
    EQUAL(LW_OK, lw_gate_free(of->gate));
    close(of->ends[0]);
    close(of->ends[1]);
}

/* Three reads take what came at once: each goes on in time where the one before has ended. */
static void reads_that_fill_their_buffer(void) {
    struct stamped of;
    char read[16];
    stamped_begin(&of);
    /* The thread's sleeps are followed from the second read on, and the kernel begins to stamp
       a while after it was asked to. */
    for (int i = 0; i < 2 || of.stamp.received_ns == 0; i++) {
        stamped_ask(&of, "0123");
        stamped_serve(&of, 4);
    }
    stamped_ask(&of, "0123456789abcdef0123456789abcdef0123456789abcdef");
    lw_stamp before = of.stamp;
    EQUAL(16, lw_recv(of.ends[0], read, sizeof read, MSG_PEEK, &of.stamp));
    CHECK(memcmp(&before, &of.stamp, sizeof before) == 0); /* Nothing was taken. */
    uint64_t ends[3];
    for (int i = 0; i < 3; i++) {
        stamped_read(&of, 16);
        ends[i] = of.stamp.received_ns;
        CHECK(of.stamp.filled == (i < 2 ? 2 : 0) && (i == 0 || of.stamp.since_ns == ends[i - 1]));
    }
    CHECK(before.read_ns < ends[0] && ends[0] < ends[1] && ends[1] < ends[2] && ends[2] < of.stamp.read_ns);
    stamped_end(&of);
}

/* Ten requests at once, a pause, one request: the pause makes it no older. */
static void request_after_a_pause(void) {
    struct stamped of;
    char read[16];
    stamped_begin(&of);
    stamped_ask(&of, "0123456789");
    stamped_serve(&of, 10);
    EQUAL(-1, lw_recv(of.ends[0], read, sizeof read, MSG_DONTWAIT, &of.stamp));
    usleep(1000000);
    stamped_ask(&of, "x");
    stamped_serve(&of, 1);
    stamped_end(&of);
}

/* A thread that reads one request, and is then busy elsewhere for a second: of the six that one
   read brings now, the kernel tells the time of the last. */
static void requests_after_one(void) {
    struct stamped of;
    lw_permit permit;
    struct timespec at;
    stamped_begin(&of);
    stamped_ask(&of, "0");
    stamped_serve(&of, 1);
    stamped_ask(&of, "12345");
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (time_t second = at.tv_sec + 2; at.tv_sec < second;) clock_gettime(CLOCK_MONOTONIC, &at);
    stamped_ask(&of, "6");
    stamped_read(&of, 6);
    EQUAL(LW_REJECT, lw_arrive(of.gate, &of.now, &permit));
    EQUAL(LW_R_LATE, permit.reason);
    stamped_end(&of);
}

static void *receive_until_cancelled(void *of) {
    char read[4];
    lw_stamp stamp;
    memset(&stamp, 0, sizeof stamp);
    while (lw_recv(*(int *)of, read, sizeof read, 0, &stamp) > 0) {
    }
    return NULL;
}

static void write_message(void *user, int level, const char *message) {
    (void)level;
    CHECK(write(*(int *)user, message, 1) == 1); /* A thread may be cancelled in it. */
}

/* The thread was cancelled before its first call: each runs to its end. */
static void *call_while_cancelled(void *of) {
    static char text[1 << 16];
    int pipe_of[2];
    lw_options settings = options();
    lw_arrival now = arrival();
    lw_permit permit;
    lw_gate *gate;
    uint16_t port;
    CHECK(pipe(pipe_of) == 0);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0 && pthread_cancel(pthread_self()) == 0);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    EQUAL(LW_OK, lw_log_set(write_message, &pipe_of[1]));
    EQUAL(LW_OK, lw_gate_new(&gate, &settings));
    EQUAL(LW_OK, lw_admin_listen(gate, "localhost:0", &port));
    EQUAL(LW_E_BUSY, lw_admin_listen(gate, "127.0.0.1:0", NULL));
    EQUAL(LW_ADMIT, lw_arrive(gate, &now, &permit));
    EQUAL(LW_OK, lw_enter(&permit));
    EQUAL(LW_OK, lw_finish(&permit, LW_DONE));
    EQUAL(LW_OK, lw_route_name(gate, 1, "get"));
    now.waited_ns = 2000000000;
    EQUAL(LW_REJECT, lw_arrive(gate, &now, &permit));
    CHECK(lw_explain(gate, permit.decision, text, sizeof text) > 0);
    CHECK(lw_stats_json(gate, text, sizeof text) > 0);
    EQUAL(LW_OK, lw_gate_free(gate));
    EQUAL(LW_OK, lw_log_set(NULL, NULL));
    *(int *)of = 1;
    pthread_testcancel();
    return NULL;
}

static void cancelled_threads(void) {
    int ends[2], has_called = 0;
    pthread_t thread;
    void *result;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(pthread_create(&thread, NULL, receive_until_cancelled, &ends[0]) == 0);
    CHECK(send(ends[1], "x", 1, 0) == 1);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK(pthread_create(&thread, NULL, call_while_cancelled, &has_called) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED && has_called);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    lw_options of = options();
    lw_gate *gate;
    wrong_gates();
    EQUAL(LW_OK, lw_gate_new(&gate, &of));
    wrong_permits(gate);
    forgotten_requests();
    threads_that_end_within_a_request();
    rejections(gate);
    locks(gate);
    requests_of_ending_threads(gate);
    queue_of_the_program();
    passed_descriptors();
    stamps();
    reads_that_fill_their_buffer();
    request_after_a_pause();
    requests_after_one();
#if !defined(__SANITIZE_ADDRESS__) /* It reports the end of any cancelled thread. */
    cancelled_threads();
#else
    (void)cancelled_threads;
#endif
    EQUAL(LW_OK, lw_gate_free(gate));
    lw_arrival late = arrival();
    lw_permit permit;
    EQUAL(LW_E_CLOSED, lw_arrive(gate, &late, &permit));
    puts("as it should be");
    return 0;
}
