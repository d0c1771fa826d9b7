/* Makes each answer of memcached a progress point for Coz, which measures the rate of progress.
 *
 * memcached needs no edits: linked with this file, it calls the `sendmsg` defined here.
 * `profiler/experiments/ld_common.py` links it. */
#include <coz.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    COZ_PROGRESS_NAMED("answers");
    return syscall(SYS_sendmsg, fd, message, flags);
}
