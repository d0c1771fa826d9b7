/* One thread, epoll, one request after the other in the order of their arrival: a FIFO queue whose
 * waiting time is known. Usage: single MODE PORT. */
#define _GNU_SOURCE
#include "handlers.h"
#include "http.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct epoll_event events[1];
	struct rlimit many = {65536, 65536};
	char path[256];

	if (argc != 3) {
		fprintf(stderr, "usage: %s MODE PORT\n", argv[0]);
		return 2;
	}
	setrlimit(RLIMIT_NOFILE, &many);
	prepare(argv[1]);
	int listener = listen_on(atoi(argv[2])), poller = epoll_create1(EPOLL_CLOEXEC);
	if (listener < 0)
		return 1;
	fcntl(listener, F_SETFL, O_NONBLOCK);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
	epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
	/* One event at a time: epoll hands level-triggered descriptors out in turn, so that the
	 * connection that became ready first is served first. */
	while (epoll_wait(poller, events, 1, -1) >= 0) {
		int fd = events[0].data.fd;
		if (fd == listener) {
			fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
			event.data.fd = fd;
			if (fd >= 0)
				epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
			continue;
		}
		int got = read_request(fd, path, sizeof(path));
		if (got == 0 || (got > 0 && !handle(fd, path)))
			close(fd);
	}
	return 1;
}
