/* Recursion deeper than any shadow stack. */
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static long down(long n) {
    if (n == 0) {
        usleep(2000);
        return 0;
    }
    long below = down(n - 1);
    __asm__ volatile("" : "+r"(below));
    return below + n;
}
__attribute__((noinline)) static void slow_afterwards(void) { usleep(2000); }

int main(void) {
    int right = down(20000) == 200010000;
    slow_afterwards();
    puts(right ? "right" : "wrong");
    return !right;
}
