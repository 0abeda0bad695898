/*
 * The kernel's TCP: TCP_NODELAY, both ends spin with MSG_DONTWAIT, one call to send a message (more where the socket's
 * buffer is full). The receiver of a stream takes as many messages with one call as its room holds. See measure.h.
 */
#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int peer = -1;

static int fresh_socket(void)
{
    int made = socket(AF_INET, SOCK_STREAM, 0);
    if (made < 0)
        die("socket");
    return made;
}

static void take_client(const struct sockaddr_in *here)
{
    int listener = fresh_socket(), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (const struct sockaddr *)here, sizeof *here) != 0 || listen(listener, 1) != 0)
        die("listen");
    peer = accept(listener, NULL, NULL);
    if (peer < 0)
        die("accept");
    close(listener);
}

static void reach_server(const struct sockaddr_in *there)
{
    const struct timespec pause = {0, 10000000};
    for (int tries = 0; tries < 1000; tries++, nanosleep(&pause, NULL)) {
        peer = fresh_socket();
        if (connect(peer, (const struct sockaddr *)there, sizeof *there) == 0)
            return;
        close(peer);
    }
    die("connect");
}

void link_open(int is_server, const char *address, int port, size_t largest)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1;
    (void)largest;
    if (inet_pton(AF_INET, address, &name.sin_addr) != 1)
        die(address);
    if (is_server)
        take_client(&name);
    else
        reach_server(&name);
    if (setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0)
        die("TCP_NODELAY");
}

void link_send(const char *message, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(peer, message, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            die("send");
        if (sent > 0) {
            message += sent;
            size -= (size_t)sent;
        }
    }
}

/* Receives so many bytes or fewer, at least one. */
static size_t receive_some(char *room, size_t size)
{
    for (;;) {
        ssize_t got = recv(peer, room, size, MSG_DONTWAIT);
        if (got > 0)
            return (size_t)got;
        if (got == 0) {
            errno = ECONNRESET;
            die("recv");
        }
        if (errno != EAGAIN && errno != EINTR)
            die("recv");
    }
}

void link_receive(char *message, size_t size)
{
    for (size_t have = 0; have < size;)
        have += receive_some(message + have, size - have);
}

void link_drain(char *room, size_t size, long count)
{
    size_t whole = size < ROOM ? ROOM / size * size : size;
    size_t left = size * (size_t)count;
    while (left > 0) {
        size_t batch = left < whole ? left : whole;
        link_receive(room, batch);
        left -= batch;
    }
}

void link_close(void)
{
    close(peer);
}
