/* Library that is loaded, called and unloaded while the run-time patches it. */
static __attribute__((noinline)) int within(volatile int *n) {
    int sum = 0;
    for (int i = 0; i < 2000; i++)
        sum += *n;
    return sum;
}
__attribute__((noinline)) int quick_in_library(void) {
    volatile int one = 1;
    return within(&one) == 2000 ? 43 : 0;
}
__attribute__((noinline)) int other_in_library(void) {
    volatile int two = 2;
    return within(&two) == 4000 ? 42 : 0;
}
