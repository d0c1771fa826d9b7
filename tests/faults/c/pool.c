/* One epoll thread and a pool of workers: a connection with bytes is queued, a worker reads it,
 * answers and arms it again. Usage: pool MODE PORT (WORKERS in the environment, 4 otherwise). */
#define _GNU_SOURCE
#include "handlers.h"
#include "http.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUE 65536
static int ready[QUEUE], poller;
static unsigned head, tail;
static pthread_mutex_t jobs = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;

static void arm(int fd, int how)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
	epoll_ctl(poller, how, fd, &event);
}

static void *work(void *unused)
{
	char path[256];
	for (;;) {
		pthread_mutex_lock(&jobs);
		while (head == tail)
			pthread_cond_wait(&some, &jobs);
		int fd = ready[head++ % QUEUE];
		pthread_mutex_unlock(&jobs);
		int got = read_request(fd, path, sizeof(path));
		if (got == 0 || (got > 0 && !handle(fd, path)))
			close(fd);
		else
			arm(fd, EPOLL_CTL_MOD);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct epoll_event events[64];
	struct rlimit many = {65536, 65536};

	if (argc != 3) {
		fprintf(stderr, "usage: %s MODE PORT\n", argv[0]);
		return 2;
	}
	setrlimit(RLIMIT_NOFILE, &many);
	prepare(argv[1]);
	poller = epoll_create1(EPOLL_CLOEXEC);
	int listener = listen_on(atoi(argv[2]));
	if (listener < 0)
		return 1;
	fcntl(listener, F_SETFL, O_NONBLOCK);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
	epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
	for (int i = 0; i < (int)setting("WORKERS", 4); i++) {
		pthread_t thread;
		pthread_create(&thread, NULL, work, NULL);
	}
	for (;;) {
		int n = epoll_wait(poller, events, 64, -1);
		for (int i = 0; i < n; i++) {
			if (events[i].data.fd == listener) {
				int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
				if (fd >= 0)
					arm(fd, EPOLL_CTL_ADD);
				continue;
			}
			pthread_mutex_lock(&jobs);
			ready[tail++ % QUEUE] = events[i].data.fd;
			pthread_cond_signal(&some);
			pthread_mutex_unlock(&jobs);
		}
	}
}
