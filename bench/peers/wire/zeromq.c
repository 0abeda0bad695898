/*
 * ZeroMQ: a pair of PAIR sockets over tcp, each with its one thread for input and output; zmq_send and zmq_recv copy
 * from and into private memory. Receiving blocks: the thread for input and output needs the core. The queues are as
 * long as ZeroMQ makes them, but hold no more than 16 MiB of the largest message. See measure.h.
 */
#include "measure.h"

#include <stdio.h>
#include <zmq.h>

static void *context, *peer;
enum { LONGEST_QUEUE = 1000, QUEUE_BYTES = 16 << 20 };

void link_open(int is_server, const char *address, int port, size_t largest)
{
    size_t fitting = QUEUE_BYTES / largest;
    int queue = fitting < LONGEST_QUEUE ? (int)fitting + 1 : LONGEST_QUEUE;
    char name[64];
    snprintf(name, sizeof name, "tcp://%s:%d", address, port);
    context = zmq_ctx_new();
    peer = zmq_socket(context, ZMQ_PAIR);
    if (peer == NULL || zmq_setsockopt(peer, ZMQ_SNDHWM, &queue, sizeof queue) != 0 ||
        zmq_setsockopt(peer, ZMQ_RCVHWM, &queue, sizeof queue) != 0 ||
        (is_server ? zmq_bind(peer, name) : zmq_connect(peer, name)) != 0)
        die(name);
}

void link_send(const char *message, size_t size)
{
    if (zmq_send(peer, message, size, 0) < 0)
        die("zmq_send");
}

void link_receive(char *message, size_t size)
{
    int got = zmq_recv(peer, message, size, 0);
    if (got < 0 || (size_t)got != size)
        die("zmq_recv");
}

void link_drain(char *room, size_t size, long count)
{
    for (long i = 0; i < count; i++)
        link_receive(room, size);
}

void link_close(void)
{
    zmq_close(peer);
    zmq_ctx_term(context);
}
