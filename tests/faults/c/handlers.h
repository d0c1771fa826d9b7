/* What a request does, by the service's mode; the servers (pool, threads, single) call `handle`. */
#ifndef HANDLERS_H
#define HANDLERS_H

/* Prepares what the mode needs: files, heap, background threads. */
void prepare(const char *mode);

/* Does one request's work and writes its answer; returns 0 if the client is gone. */
int handle(int fd, const char *path);

/* Milliseconds of CPU on the calling thread. */
void burn(double ms);

double setting(const char *name, double otherwise);
#endif
