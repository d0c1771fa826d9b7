/* Interpreters with a constant and with a changing table of block addresses; a weak function. */
#include <stdio.h>
#include <unistd.h>

__attribute__((weak, noinline)) int overridden(int n) { /* may be defined elsewhere, too */
    usleep(2000);
    return n;
}

__attribute__((noinline)) static int runs(const unsigned char *code) {
    static const void *const blocks[] = {&&add, &&wait, &&end}; /* a twin can have a copy */
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

__attribute__((noinline)) int changes(const unsigned char *code, int which) {
    static const void *blocks[2]; /* may change, so a twin cannot have a copy */
    int sum = 0;
    blocks[0] = which ? &&end : &&add;
    blocks[1] = which ? &&add : &&end;
    goto *blocks[*code++];
add:
    sum += *code++;
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
    static const unsigned char more[] = {0, 5, 1};
    int all = runs(code) + assembles() + overridden(0) + changes(more, 0);
    puts(all == 29 || all == 129 ? "right" : "wrong");
    return 0;
}
