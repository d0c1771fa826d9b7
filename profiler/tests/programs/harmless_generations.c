/* Forks within forks, as daemons do: no generation has more descriptors than the first one. */
#include "harmless.h"

#include <dirent.h>
#include <sys/wait.h>

static int descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    closedir(folder);
    return count;
}

int main(void) {
    /* A plain program has three descriptors, and those that the test's harness left open. */
    int first = descriptors();
    MUST(first < 16);
    for (int generation = 0; generation < 6; generation++) {
        work(20);
        toggle();
        MUST(descriptors() == first);
        pid_t child = fork();
        if (child != 0) {
            int status = 1;
            MUST(waitpid(child, &status, 0) == child && status == 0);
            if (generation > 0)
                _exit(wrong != 0);
            return verdict();
        }
    }
    _exit(wrong != 0);
}
