/* For Coz, which compares how fast something goes on: memcached's answers. memcached isn't edited; linked with this, its sendmsg() is the one
 * here. `profiler/experiments/ld_common.py` links it. */
#include <coz.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    COZ_PROGRESS_NAMED("answers");
    return syscall(SYS_sendmsg, fd, message, flags);
}
