/* setjmp and longjmp over instrumented frames, and out of a signal handler. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static jmp_buf back;
static sigjmp_buf from_handler;

__attribute__((noinline)) static void deep(int n) {
    if (n == 0)
        longjmp(back, 7);
    deep(n - 1);
    __asm__ volatile("");
}
__attribute__((noinline)) static int jumps(int n) {
    volatile int kept = n;
    int how = setjmp(back);
    if (how == 0)
        deep(n);
    return kept * 10 + how;
}
static void handler(int number) {
    (void)number;
    siglongjmp(from_handler, 1);
}
__attribute__((noinline)) static int by_signal(void) {
    if (sigsetjmp(from_handler, 1) == 0) {
        raise(SIGUSR1);
        return 0;
    }
    return 1;
}
__attribute__((noinline)) static void slow_after_jumps(void) { usleep(3000); }

int main(void) {
    int wrong = 0;
    signal(SIGUSR1, handler);
    for (int i = 0; i < 200; i++)
        wrong += jumps(i % 50) != (i % 50) * 10 + 7;
    for (int i = 0; i < 200; i++)
        wrong += by_signal() != 1;
    slow_after_jumps();
    puts(wrong ? "wrong" : "right");
    return wrong != 0;
}
