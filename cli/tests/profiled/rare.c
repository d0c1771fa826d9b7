/* A function that is slow on one input in five hundred. Requests are the calls of handle. */
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long sink;

__attribute__((noinline)) static void spin(unsigned long turns) {
    for (unsigned long i = 0; i < turns; i++)
        sink += i;
}

__attribute__((noinline)) void parse_common(int input) { spin(3000 + input % 7); }

__attribute__((noinline)) void parse_rare(int input) { spin(400000 + input % 7); }

__attribute__((noinline)) void handle(int input) {
    parse_common(input);
    if (input % 500 == 499)
        parse_rare(input);
}

int main(void) {
    for (int input = 0; input < 5000; input++)
        handle(input);
    return 0;
}
