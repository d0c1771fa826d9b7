#include "http.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int read_request(int fd, char *path, size_t size)
{
	char head[4096];
	size_t have = 0;

	/* The clients here send a head in one segment and never two in advance. */
	while (have < sizeof(head) - 1) {
		ssize_t n = recv(fd, head + have, sizeof(head) - 1 - have, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && have == 0)
			return -1;
		if (n <= 0)
			return 0;
		have += n;
		head[have] = 0;
		if (strstr(head, "\r\n\r\n")) {
			char format[32];
			snprintf(format, sizeof(format), "GET %%%zus", size - 1);
			return sscanf(head, format, path) == 1;
		}
	}
	return 0;
}

static int write_all(int fd, const char *data, size_t length)
{
	while (length > 0) {
		ssize_t n = send(fd, data, length, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			struct pollfd ready = {.fd = fd, .events = POLLOUT};
			poll(&ready, 1, 1000);
			continue;
		}
		if (n <= 0)
			return 0;
		data += n;
		length -= n;
	}
	return 1;
}

int write_answer(int fd, const char *body, size_t length)
{
	char head[160];
	int n = snprintf(head, sizeof(head),
			 "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n",
			 length);
	return write_all(fd, head, n) && write_all(fd, body, length);
}

int listen_on(int port)
{
	int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 4096) < 0) {
		perror("listen");
		return -1;
	}
	return fd;
}
