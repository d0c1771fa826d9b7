/* Masks, handlers and waits for signals stay the program's: signals to the process reach its
 * threads, handlers stay, and there is no handler that the program did not install. */
#include "harmless.h"

#include <pthread.h>
#include <sys/wait.h>

static _Atomic int handled;
static _Atomic int awaited;

static void handler(int number) {
    (void)number;
    handled++;
}

static void *waits(void *set) {
    int number = 0;
    for (int i = 0; i < 3; i++) {
        MUST(sigwait(set, &number) == 0 && number == SIGUSR1);
        awaited++;
    }
    return NULL;
}

int main(void) {
    sigset_t before, after, one;
    MUST(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
    for (int number = 1; number < 32; number++) {
        struct sigaction now;
        /* SIGUSR2 starts and stops a recording where the test sets HARMLESS_TOGGLE. */
        if (number == SIGKILL || number == SIGSTOP || (number == SIGUSR2 && getenv("HARMLESS_TOGGLE")))
            continue;
        MUST(sigaction(number, NULL, &now) == 0 && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN));
    }
    pthread_t thread;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    MUST(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0);
    pthread_create(&thread, NULL, waits, &one);
    for (int i = 0; i < 3; i++) {
        work(50);
        toggle();
        kill(getpid(), SIGUSR1);
        /* The kernel merges a signal with one that is pending. */
        while (awaited == i)
            usleep(1000);
    }
    pthread_join(thread, NULL);
    MUST(pthread_sigmask(SIG_UNBLOCK, &one, NULL) == 0);
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    work(50);
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR2);
    MUST(handled == 2);
    MUST(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
    for (int number = 1; number < 32; number++)
        MUST(sigismember(&before, number) == sigismember(&after, number));
    /* The signal ends a child, as without a recording. */
    pid_t child = fork();
    if (child == 0) {
        signal(SIGUSR2, SIG_DFL);
        raise(SIGUSR2);
        _exit(0);
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR2);
    return verdict();
}
