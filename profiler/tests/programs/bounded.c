/* Records more events than any disk budget of the tests holds. */
#include "leeward_profile.h"

#include <stdio.h>
#include <unistd.h>

int main(void) {
    for (unsigned long i = 1; i <= 600000; i++) {
        leeward_req_start(i * 0x9E3779B97F4A7C15u, NULL);
        leeward_req_end(i * 0x9E3779B97F4A7C15u);
        if (i % 1000 == 0)
            usleep(1000); /* time for the run-time to empty the rings */
    }
    puts("right");
    return 0;
}
