/* Messages on the program's standard error.
 *
 * They are printed only while descriptor 2 is still the file that it was when the process began. A
 * daemon closes it, and the number may later be another file of the program. */
#include "rt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if !defined(SYS_pidfd_open)
#define SYS_pidfd_open 434
#endif
#if !defined(SYS_pidfd_getfd)
#define SYS_pidfd_getfd 438
#endif

static struct stat at_first;
static bool is_known;
/* Message that the control thread could not print; a thread of the program prints it later. */
static char unsaid[1024];
static _Atomic int unsaid_length;

void lw_say_begin(void) { is_known = fstat(2, &at_first) == 0; }

/* False if the descriptor is another file now, or the line could not be written. */
static bool print(int descriptor, const char *line, int length) {
    struct stat now;
    if (!is_known || fstat(descriptor, &now) != 0 || now.st_dev != at_first.st_dev || now.st_ino != at_first.st_ino)
        return false;
    return write(descriptor, line, (size_t)length) == length;
}

/* The run-time's threads have their own table: borrow a copy of the program's descriptor for one
 * line. */
static bool print_from_own_table(const char *line, int length) {
    int process = (int)syscall(SYS_pidfd_open, getpid(), 0u);
    if (process < 0)
        return false;
    int copy = (int)syscall(SYS_pidfd_getfd, process, 2, 0u);
    close(process);
    if (copy < 0)
        return errno == EBADF;
    print(copy, line, length);
    close(copy);
    return true;
}

void lw_say(const char *format, ...) {
    char line[sizeof unsaid];
    int length = snprintf(line, sizeof line, "leeward: ");
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length++] = '\n';
    if (!lw_has_own_descriptors) {
        print(2, line, length);
    } else if (!print_from_own_table(line, length) && atomic_load(&unsaid_length) == 0) {
        memcpy(unsaid, line, (size_t)length);
        atomic_store(&unsaid_length, length);
    }
}

void lw_say_unsaid(void) {
    int length = atomic_exchange(&unsaid_length, 0);
    if (length > 0)
        print(2, unsaid, length);
}
