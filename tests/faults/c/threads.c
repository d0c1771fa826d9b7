/* Blocking sockets. `threads MODE PORT` starts a thread for each connection; with WORKERS=N in
 * the environment it is a fixed set instead, each of which serves one connection until it ends. */
#include "handlers.h"
#include "http.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener;

static void *serve(void *connection)
{
	char path[256];
	int fd = (int)(intptr_t)connection;
	while (read_request(fd, path, sizeof(path)) > 0 && handle(fd, path))
		;
	close(fd);
	return NULL;
}

static void *accept_and_serve(void *unused)
{
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd >= 0)
			serve((void *)(intptr_t)fd);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_attr_t attr;
	pthread_t thread;

	if (argc != 3) {
		fprintf(stderr, "usage: %s MODE PORT\n", argv[0]);
		return 2;
	}
	prepare(argv[1]);
	listener = listen_on(atoi(argv[2]));
	if (listener < 0)
		return 1;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 << 10);
	int workers = setting("WORKERS", 0);
	for (int i = 0; i < workers - 1; i++)
		pthread_create(&thread, &attr, accept_and_serve, NULL);
	if (workers)
		accept_and_serve(NULL);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd >= 0)
			pthread_create(&thread, &attr, serve, (void *)(intptr_t)fd);
	}
}
