/*
 * What the own programs for a network have in common: the phases of every size, and the samples.
 *
 * usage: PROGRAM server|client ADDRESS PORT CELL_MS SIZE...
 * The client prints, per size, one JSON object with the latency and one with the stream:
 *   {"size":8,"p50_ns":...,"p99_ns":...}   half a round trip
 *   {"size":8,"msgs_per_s":...}            the server has all of them, and has said so
 *
 * A program gives the link functions below; measure.c has the rest, main included. Messages go from private memory to
 * private memory. The functions end the program if the network fails.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stddef.h>

/* The server listens at the address and takes one client; the client tries until it is taken. No message is longer. */
void link_open(int is_server, const char *address, int port, size_t largest);

/* Sends one message. */
void link_send(const char *message, size_t size);

/* Receives the next message, which has this size. */
void link_receive(char *message, size_t size);

/* Receives a stream of messages of this size. */
void link_drain(char *room, size_t size, long count);

/* Waits until everything is sent, and ends. */
void link_close(void);

/* Says why, and ends the program. */
_Noreturn void die(const char *what);

/* Bytes that may be received with one call, at least; `room` above holds them, or one message if that is longer. */
enum { ROOM = 64 << 10 };

#endif
