/* System-call filters (seccomp) that the program installs.
 *
 * The kernel may kill the process for a system call that the filter does not list. So the recording
 * ends properly before the filter is installed, and all threads of the run-time end. After that,
 * the run-time makes no system call in this process or its forked children. */
#include "rt.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#if !defined(PR_SET_SECCOMP)
#define PR_SET_SECCOMP 22
#endif

/* Next definitions, such as of another preloaded library. NULL until a recording may begin.
 *
 * In programs that are not recorded, nothing is looked up: an allocator may call these functions
 * while it initializes itself. */
long (*lw_next_syscall)(long, ...) __attribute__((visibility("hidden")));
static int (*next_prctl)(int, unsigned long, unsigned long, unsigned long, unsigned long);

void lw_filters_begin(void) {
    lw_next_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    next_prctl = (int (*)(int, unsigned long, unsigned long, unsigned long, unsigned long))dlsym(RTLD_NEXT, "prctl");
}

__attribute__((used, visibility("hidden"))) void lw_before_filter(void) {
    int error = errno;
    lw_control_leave();
    errno = error;
}

LW_EXPORT int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    if (option == PR_SET_SECCOMP)
        lw_before_filter();
    return next_prctl ? next_prctl(option, a, b, c, d) : (int)syscall(SYS_prctl, option, a, b, c, d);
}

#if defined(__x86_64__)
/* Like the C library's function, with one comparison in front. The arguments move by one register,
 * and an error goes to errno. In assembly, because a call may create a thread or share this stack,
 * and must then find nothing of the run-time on it. */
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    cmpq $317, %rdi\n" /* seccomp */
        "    je 3f\n"
        "1:  movq lw_next_syscall(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    jne 4f\n"
        "    movq %rdi, %rax\n"
        "    movq %rsi, %rdi\n"
        "    movq %rdx, %rsi\n"
        "    movq %rcx, %rdx\n"
        "    movq %r8, %r10\n"
        "    movq %r9, %r8\n"
        "    movq 8(%rsp), %r9\n"
        "    syscall\n"
        "    cmpq $-4095, %rax\n"
        "    jae 2f\n"
        "    ret\n"
        "2:  negl %eax\n"
        "    pushq %rax\n"
        "    call __errno_location@PLT\n"
        "    popq %rcx\n"
        "    movl %ecx, (%rax)\n"
        "    movq $-1, %rax\n"
        "    ret\n"
        "3:  pushq %rdi\n"
        "    pushq %rsi\n"
        "    pushq %rdx\n"
        "    pushq %rcx\n"
        "    pushq %r8\n"
        "    call lw_before_filter\n"
        "    popq %r8\n"
        "    popq %rcx\n"
        "    popq %rdx\n"
        "    popq %rsi\n"
        "    popq %rdi\n"
        "    xorl %r9d, %r9d\n" /* seccomp takes three arguments */
        "    jmp 1b\n"
        "4:  xchgq %rax, %r11\n"
        "    xorl %eax, %eax\n"
        "    jmpq *%r11\n"
        ".size syscall, . - syscall\n");
#endif
