/* Closes descriptors that it did not open, reuses their numbers (files, pipe, listener), and passes
 * some to a child and through a socket. The run-time must not write, read or close any of them. */
#include "harmless.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FILES = 24, ROUNDS = 60 };

static _Atomic int stop;

static void *busy(void *unused) {
    while (!stop)
        work(2);
    return unused;
}

static void close_all(const char *way) {
    if (strcmp(way, "loop") == 0)
        for (int number = 3; number < 256; number++)
            close(number);
    else if (strcmp(way, "range") == 0)
        MUST(syscall(SYS_close_range, 3u, ~0u, 0u) == 0);
    else if (strcmp(way, "from") == 0)
        closefrom(3);
    else if (strcmp(way, "dup2") == 0)
        for (int number = 3; number < 64; number++)
            MUST(dup2(1, number) == number && close(number) == 0);
}

static int files[FILES];

static int name_of(int i, char name[32]) { return snprintf(name, 32, "file-%02d", i); }

static void open_files(void) {
    char name[32];
    for (int i = 0; i < FILES; i++) {
        name_of(i, name);
        files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        /* The lowest free number, as without a recording. */
        MUST(files[i] == 3 + i);
    }
}

static void check_files(int rounds) {
    char want[64], have[64];
    for (int i = 0; i < FILES; i++) {
        struct stat about;
        off_t at = 0;
        for (int round = 0; round < rounds; round++) {
            int length = snprintf(want, sizeof want, "file %d round %d\n", i, round);
            if (pread(files[i], have, (size_t)length, at) != length || memcmp(have, want, (size_t)length) != 0) {
                MUST(!"the file holds what was written");
                break;
            }
            at += length;
        }
        MUST(fstat(files[i], &about) == 0 && about.st_size == at);
    }
}

static void child_keeps_them(void) {
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < FILES; i++)
            if (fcntl(files[i], F_GETFD) < 0 || open("/dev/null", O_RDONLY) != 3 + FILES || close(3 + FILES) != 0)
                _exit(1);
        _exit(0);
    }
    int status = 1;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

static void listener_and_pipe(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), ends[2];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    MUST(bind(listener, (void *)&address, size) == 0 && listen(listener, 64) == 0);
    MUST(getsockname(listener, (void *)&address, &size) == 0 && pipe(ends) == 0);
    for (int i = 0; i < 20; i++) {
        char bytes[16] = "0123456789abcde", got[16] = "";
        int client = socket(AF_INET, SOCK_STREAM, 0);
        MUST(connect(client, (void *)&address, size) == 0 && write(ends[1], bytes, 16) == 16);
        work(20);
        struct pollfd waits = {listener, POLLIN, 0};
        MUST(poll(&waits, 1, 10000) == 1);
        close(accept(listener, NULL, NULL));
        close(client);
        waits = (struct pollfd){ends[0], POLLIN, 0};
        MUST(poll(&waits, 1, 10000) == 1 && read(ends[0], got, 16) == 16 && memcmp(bytes, got, 16) == 0);
    }
    close(ends[0]);
    close(ends[1]);
    close(listener);
}

/* Passes a descriptor through a socket: it arrives at the lowest free number, as the same file. */
static void passed_on(void) {
    int ends[2], sent = files[0];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    char byte = 'x', room[CMSG_SPACE(sizeof sent)] = "";
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof sent)};
    memcpy(CMSG_DATA(control), &sent, sizeof sent);
    MUST(sendmsg(ends[0], &message, 0) == 1 && recvmsg(ends[1], &message, 0) == 1);
    int got = -1;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    struct stat one, other;
    MUST(got == ends[1] + 1 && fstat(sent, &one) == 0 && fstat(got, &other) == 0 && one.st_ino == other.st_ino);
    close(got);
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **arguments) {
    pthread_t thread;
    pthread_create(&thread, NULL, busy, NULL);
    work(50);
    close_all(count > 1 ? arguments[1] : "loop");
    open_files();
    char line[64];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < FILES; i++) {
            int length = snprintf(line, sizeof line, "file %d round %d\n", i, round);
            MUST(write(files[i], line, (size_t)length) == length);
        }
        work(4);
        if (round % 15 == 7)
            toggle();
    }
    check_files(ROUNDS);
    child_keeps_them();
    passed_on();
    listener_and_pipe();
    stop = 1;
    pthread_join(thread, NULL);
    check_files(ROUNDS);
    return verdict();
}
