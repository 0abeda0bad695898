/* See measure.h. */
#include "measure.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What the server is told before every block of messages. */
struct order {
    uint64_t kind, size, count;
};
enum { PINGPONG, STREAM, END };

static char *outgoing, *incoming;
static size_t room;
static double *samples;
static long samples_room;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

_Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

static void *grown(void *memory, size_t size)
{
    memory = realloc(memory, size);
    if (memory == NULL)
        die("out of memory");
    return memory;
}

/* Both buffers hold a message of this size, and were touched. */
static void make_room(size_t size)
{
    size = size < ROOM ? ROOM : size;
    if (size <= room)
        return;
    room = size;
    outgoing = memset(grown(outgoing, size), 1, size);
    incoming = memset(grown(incoming, size), 2, size);
}

/* The server's part. */

static void serve(void)
{
    struct order order;
    for (;;) {
        link_receive((char *)&order, sizeof order);
        if (order.kind == END)
            return;
        link_send(outgoing, 1);
        if (order.kind == STREAM) {
            link_drain(incoming, order.size, (long)order.count);
            link_send(outgoing, 1);
            continue;
        }
        for (uint64_t i = 0; i < order.count; i++) {
            link_receive(incoming, order.size);
            link_send(outgoing, order.size);
        }
    }
}

/* The client's part: a block of messages takes so many nanoseconds. */

static void tell(uint64_t kind, size_t size, long count)
{
    struct order order = {kind, size, (uint64_t)count};
    link_send((const char *)&order, sizeof order);
}

static double pingpong(size_t size, long count)
{
    if (count > samples_room) {
        samples_room = count;
        samples = grown(samples, (size_t)count * sizeof *samples);
    }
    tell(PINGPONG, size, count);
    link_receive(incoming, 1);
    double start = now_ns(), last = start;
    for (long i = 0; i < count; i++) {
        link_send(outgoing, size);
        link_receive(incoming, size);
        double now = now_ns();
        samples[i] = (now - last) / 2;
        last = now;
    }
    return last - start;
}

static double stream(size_t size, long count)
{
    tell(STREAM, size, count);
    link_receive(incoming, 1);
    double start = now_ns();
    for (long i = 0; i < count; i++)
        link_send(outgoing, size);
    link_receive(incoming, 1);
    return now_ns() - start;
}

/* A block grows until it fills a quarter of a cell, which is also the warm-up; then one full cell. */
static double measure(double (*run)(size_t, long), size_t size, double cell_ns, long *count)
{
    double took = 0;
    for (*count = 4; took < cell_ns / 4; *count *= 2)
        took = run(size, *count);
    *count = (long)((double)*count / 2 * cell_ns / took) + 1;
    return run(size, *count);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void one_size(size_t size, double cell_ns)
{
    long count;
    measure(pingpong, size, cell_ns, &count);
    qsort(samples, (size_t)count, sizeof *samples, ascending);
    printf("{\"size\":%zu,\"p50_ns\":%.1f,\"p99_ns\":%.1f}\n", size, samples[count / 2], samples[count * 99 / 100]);
    double took = measure(stream, size, cell_ns, &count);
    printf("{\"size\":%zu,\"msgs_per_s\":%.1f}\n", size, (double)count * 1e9 / took);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int is_server = argc > 1 && strcmp(argv[1], "server") == 0;
    if (argc < 6 || (!is_server && strcmp(argv[1], "client") != 0)) {
        fprintf(stderr, "usage: %s server|client ADDRESS PORT CELL_MS SIZE...\n", argv[0]);
        return 2;
    }
    for (int i = 5; i < argc; i++)
        make_room((size_t)atol(argv[i]));
    link_open(is_server, argv[2], atoi(argv[3]), room);
    if (is_server) {
        serve();
    } else {
        for (int i = 5; i < argc; i++)
            one_size((size_t)atol(argv[i]), atof(argv[4]) * 1e6);
        tell(END, 0, 0);
    }
    link_close();
    return 0;
}
