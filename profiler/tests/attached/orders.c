/* A program without connections: it handles an order each few milliseconds, in two parts. */
#include <time.h>

static volatile int sum;

__attribute__((noinline)) static void count(int n) {
    for (int i = 0; i < n; i++)
        sum += i;
}

__attribute__((noinline)) static void parse_order(int n) {
    count(n);
}

__attribute__((noinline)) static void price_order(int n) {
    count(4 * n);
    sum++;
}

__attribute__((noinline)) static void handle_order(int n) {
    parse_order(n);
    price_order(n);
    sum++;
}

int main(void) {
    for (unsigned turn = 0;; turn++) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, 0);
        handle_order(turn % 50 ? 300000 : 3000000);
    }
}
