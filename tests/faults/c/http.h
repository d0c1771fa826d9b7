/* The part of HTTP/1.1 that all C services here share: read one request head, write one answer. */
#ifndef HTTP_H
#define HTTP_H
#include <stddef.h>

/* Reads one request head from a blocking or nonblocking socket into `path`.
 * Returns 1 for a request, 0 if the client closed, -1 if no complete head is there yet. */
int read_request(int fd, char *path, size_t size);

/* Writes the whole answer; returns 0 if the client is gone. */
int write_answer(int fd, const char *body, size_t length);

/* Listens on 127.0.0.1:port. */
int listen_on(int port);
#endif
