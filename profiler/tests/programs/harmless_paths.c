/* Changes its folder, and its root if it may, while it is recorded into a relative folder. Files in
 * the new folder with the names of the recording's must stay as they are. */
#include "harmless.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Functions of the run-time, if it is linked or preloaded. */
void leeward_req_start(uint64_t id, const void *queue) __attribute__((weak));
void leeward_req_end(uint64_t id) __attribute__((weak));

/* Records as many events as several segments hold. */
static void fill(void) {
    for (uint64_t request = 1; leeward_req_start && request <= 100000; request++) {
        leeward_req_start(request, NULL);
        leeward_req_end(request);
        if (request % 2000 == 0)
            usleep(2000);
    }
}

static void put(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    MUST(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && close(file) == 0);
}

static void decoys(const char *folder) {
    char path[256];
    mkdir(folder, 0700);
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "%s/%08d.lwt", folder, i);
        put(path, "somebody's");
    }
}

static void check(const char *folder) {
    char path[256];
    struct stat about;
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "%s/%08d.lwt", folder, i);
        MUST(stat(path, &about) == 0 && about.st_size == 10);
    }
}

int main(int count, char **arguments) {
    const char *trace = count > 1 ? arguments[1] : "relative.trace";
    bool jailed = count > 2;
    mkdir("elsewhere", 0700);
    work(20);
    MUST(chdir("elsewhere") == 0);
    decoys(trace);
    if (jailed && geteuid() == 0)
        MUST(chroot(".") == 0);
    for (int i = 0; i < 4; i++) {
        fill();
        work(100);
        toggle();
    }
    pid_t child = fork();
    if (child == 0) {
        work(100);
        _exit(0);
    }
    int status = 1;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    check(trace);
    /* The folder still has its decoys, so it cannot be removed. */
    MUST(remove(trace) != 0);
    return verdict();
}
