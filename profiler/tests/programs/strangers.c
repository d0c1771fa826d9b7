/* Two children take turns all the time while their parent is stopped. If the kernel wrote their
 * events to the parent's buffers, these would overflow: no thread reads them meanwhile. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS 60000

static void takes_turns(int from, int to) {
    char token = 0;
    for (int i = 0; i < TURNS; i++)
        if (read(from, &token, 1) != 1 || write(to, &token, 1) != 1)
            _exit(1);
}

int main(void) {
    int there[2], back[2], status = 1;
    /* Lets the recording begin, with its threads. */
    usleep(100000);
    pid_t parent = getpid(), first = fork();
    if (first == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((unsigned)sched_getcpu(), &one);
        /* On one CPU each turn is two switches, and one buffer gets all of them. */
        if (pipe(there) != 0 || pipe(back) != 0 || sched_setaffinity(0, sizeof one, &one) != 0)
            _exit(1);
        kill(parent, SIGSTOP);
        pid_t other = fork();
        if (other == 0) {
            takes_turns(there[0], back[1]);
            _exit(0);
        }
        if (write(there[1], "x", 1) != 1)
            status = 2;
        else
            takes_turns(back[0], there[1]);
        int ended = 1;
        waitpid(other, &ended, 0);
        kill(parent, SIGCONT);
        _exit(ended != 0 || status == 2);
    }
    while (waitpid(first, &status, 0) < 0)
        ;
    puts(status == 0 ? "right" : "wrong");
    return status != 0;
}
