/* A process that writes its title over its arguments, as PostgreSQL's processes do. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void works(int n) {
    for (volatile int i = 0; i < n; i++)
        ;
}

int main(int count, char **arguments) {
    char *end = arguments[count - 1] + strlen(arguments[count - 1]);
    pid_t child = fork();
    if (child == 0) {
        /* The child's recording begins with the parent's title. */
        usleep(200000);
        works(1000000);
        memset(arguments[0], 0, (size_t)(end - arguments[0]));
        strcpy(arguments[0], "keeper: idle");
        return 0;
    }
    int status = 1;
    waitpid(child, &status, 0);
    puts(status == 0 ? "right" : "wrong");
    return status != 0;
}
