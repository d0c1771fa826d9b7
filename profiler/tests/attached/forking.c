/* A service that forks a process for each connection. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile unsigned sum;

__attribute__((noinline)) static void count(unsigned steps) {
    for (unsigned step = 0; step < steps; step++)
        sum += step;
}

__attribute__((noinline)) static void render_page(void) {
    count(20000);
    sum++;
}

__attribute__((noinline)) static void export_orders(void) {
    count(20000000);
    sum++;
}

static void serve(int connection) {
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwell\n";
    char request[4096];
    ssize_t length;
    while ((length = read(connection, request, sizeof request - 1)) > 0) {
        request[length] = 0;
        if (strstr(request, "/export"))
            export_orders();
        else
            render_page();
        if (write(connection, answer, sizeof answer - 1) < 0)
            return;
    }
}

int main(int count_of_arguments, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (count_of_arguments != 2)
        return 2;
    address.sin_port = htons((unsigned short)atoi(arguments[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    /* Children leave no trace of their end. */
    signal(SIGCHLD, SIG_IGN);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128))
        return 1;
    for (;;) {
        int connection = accept(listener, 0, 0);
        if (connection < 0)
            continue;
        if (fork() == 0) {
            close(listener);
            serve(connection);
            _exit(0);
        }
        close(connection);
    }
}
