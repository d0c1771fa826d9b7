/* A state machine of musttail calls that would overflow any stack if they became calls. */
#include <stdio.h>
#include <unistd.h>

typedef long state(long left, long sum);
static state one, two;
__attribute__((noinline)) static long one(long left, long sum) {
    if (left == 0)
        return sum;
    if (left % 1000000 == 0)
        usleep(2000);
    __attribute__((musttail)) return two(left - 1, sum + 1);
}
__attribute__((noinline)) static long two(long left, long sum) {
    if (left == 0)
        return sum;
    __attribute__((musttail)) return one(left - 1, sum + 2);
}

int main(void) {
    int right = one(3000000, 0) == 4500000;
    puts(right ? "right" : "wrong");
    return !right;
}
