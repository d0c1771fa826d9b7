/* Checks for the test programs: a failed one ends the program with its place. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define EQUAL(expected, found)                                                            \
    do {                                                                                  \
        long long expected_ = (long long)(expected), found_ = (long long)(found);         \
        if (expected_ != found_) {                                                        \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #found,  \
                    found_, expected_);                                                   \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#endif
