#include <unistd.h>
static __thread int state;
__attribute__((noinline)) int in_library(int n) {
    usleep(2000);
    state = 2 * n + 1;
    return state;
}
