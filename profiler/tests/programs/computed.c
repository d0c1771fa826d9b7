/* An interpreter whose table of blocks' addresses can only lead into one body, and a function that is defined here and elsewhere. */
#include <stdio.h>
#include <unistd.h>

__attribute__((weak, noinline)) int overridden(int n) {
    usleep(2000);
    return n;
}

__attribute__((noinline)) static int runs(const unsigned char *code) {
    static const void *const blocks[] = {&&add, &&wait, &&end};
    int sum = 0;
    goto *blocks[*code++];
add:
    sum += *code++;
    goto *blocks[*code++];
wait:
    usleep(2000);
    goto *blocks[*code++];
end:
    return sum;
}

__attribute__((noinline)) static int assembles(void) {
    int n;
    __asm__ volatile("named_once_%=: movl $3, %0" : "=r"(n));
    usleep(2000);
    return n;
}

int main(void) {
    static const unsigned char code[] = {0, 5, 1, 0, 7, 1, 0, 9, 2};
    int all = runs(code) + assembles() + overridden(0);
    puts(all == 24 || all == 124 ? "right" : "wrong");
    return 0;
}
