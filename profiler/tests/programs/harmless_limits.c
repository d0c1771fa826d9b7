/* Lowers a limit while it is recorded: only the recording may fail at it. `stderr` also closes
 * standard error and gives its number to a file, which must contain no message. */
#include "harmless.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void limit(int which, rlim_t most) {
    struct rlimit now;
    MUST(getrlimit(which, &now) == 0);
    now.rlim_cur = most;
    MUST(setrlimit(which, &now) == 0);
}

int main(int count, char **arguments) {
    const char *which = count > 1 ? arguments[1] : "files";
    work(20);
    int own = open("own", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (strcmp(which, "stderr") == 0) {
        MUST(close(2) == 0 && open("as-stderr", O_RDWR | O_CREAT | O_TRUNC, 0600) == 2);
        limit(RLIMIT_FSIZE, 4096);
    }
    if (strcmp(which, "size") == 0)
        limit(RLIMIT_FSIZE, 4096);
    if (strcmp(which, "files") == 0)
        limit(RLIMIT_NOFILE, (rlim_t)own + 1);
    for (int i = 0; i < 8; i++) {
        work(100);
        toggle();
    }
    MUST(write(own, "mine", 4) == 4);
    if (strcmp(which, "files") == 0) {
        /* The program's own last number stays free for the program. */
        MUST(close(own) == 0 && (own = open("own", O_RDWR)) >= 0);
    }
    if (strcmp(which, "stderr") == 0) {
        struct stat about;
        MUST(fstat(2, &about) == 0 && about.st_size == 0);
    }
    return verdict();
}
