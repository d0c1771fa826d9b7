/* Loads a library, calls it and unloads it, three times. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) static int call(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*in_library)(int) = (int (*)(int))dlsym(library, "in_library");
    int result = in_library ? in_library(20) : 0;
    usleep(60000); /* time for the run-time to see the library */
    dlclose(library);
    return result != 41;
}

int main(int count, char **arguments) {
    int wrong = count < 2;
    for (int i = 0; i < 3 && !wrong; i++)
        wrong = call(arguments[1]);
    puts(wrong ? "wrong" : "right");
    return wrong;
}
