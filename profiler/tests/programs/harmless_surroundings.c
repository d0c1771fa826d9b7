/* Environment, umask, folder, errno, priority, names and stacks are as without a recording. */
#include "harmless.h"

#include <limits.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

static void *small(void *unused) {
    char room[2048];
    memset(room, 1, sizeof room);
    work(1);
    sink += (unsigned char)room[sink % sizeof room];
    return unused;
}

static void *large(void *from) {
    char name[16] = "";
    MUST(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "of-the-program") == 0);
    MUST(getpriority(PRIO_PROCESS, 0) == *(int *)from);
    return NULL;
}

int main(void) {
    MUST(errno == 0);
    char before[PATH_MAX], after[PATH_MAX];
    int variables = 0, nice = getpriority(PRIO_PROCESS, 0);
    while (environ[variables])
        variables++;
    MUST(getcwd(before, sizeof before) != NULL && umask(027) != 0777);
    prctl(PR_SET_NAME, "of-the-program");
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    MUST(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
    for (int i = 0; i < 50; i++) {
        MUST(pthread_create(&thread, &attributes, small, NULL) == 0 && pthread_join(thread, NULL) == 0);
        if (i % 20 == 10)
            toggle();
    }
    MUST(pthread_create(&thread, NULL, large, &nice) == 0 && pthread_join(thread, NULL) == 0);
    int still = 0;
    while (environ[still])
        still++;
    MUST(still == variables && umask(027) == 027);
    MUST(getcwd(after, sizeof after) != NULL && strcmp(before, after) == 0);
    return verdict();
}
