/*
 * Open MPI's part of the comparison: rank 0 measures, rank 1 answers.
 *
 * usage: mpirun ... peer sendrecv|put CELL_MS SIZE...
 * prints, per size, one JSON object with the latency and one with the stream:
 *   {"size":8,"p50_ns":...,"p99_ns":...}   half a round trip
 *   {"size":8,"msgs_per_s":...}            rank 0 sends, rank 1 has all of them
 *
 * sendrecv: private buffer to private buffer. put: MPI_Put into a window of rank 1, then a flag behind it; the stream
 * of puts is flagged only once at its end, because a put has no notice of its own.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG = 1, WINDOW = 64, FLAG_GAP = 64 };

static int rank;
static int largest;
static char *outgoing, *incoming;
static MPI_Win window;
static char *window_base;
static uint64_t puts_flagged;
static double *samples;
static long samples_room;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *or_die(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "peer: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return memory;
}

/* One direction of each kind of move. */

static void send_one(int size)
{
    MPI_Send(outgoing, size, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD);
}

static void receive_one(int size)
{
    MPI_Recv(incoming, size, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void put_flag(void)
{
    uint64_t flag = ++puts_flagged;
    MPI_Win_flush(1 - rank, window);
    MPI_Put(&flag, 1, MPI_UINT64_T, 1 - rank, largest + FLAG_GAP, 1, MPI_UINT64_T, window);
    MPI_Win_flush(1 - rank, window);
}

static void put_one(int size)
{
    MPI_Put(outgoing, size, MPI_BYTE, 1 - rank, 0, size, MPI_BYTE, window);
    put_flag();
}

/* Both sides flag in turn, so the n-th flag that arrives carries n, whoever counts. */
static void await_flag(uint64_t expected)
{
    const volatile uint64_t *flag = (const volatile uint64_t *)(void *)(window_base + largest + FLAG_GAP);
    while (*flag != expected)
        MPI_Win_sync(window);
}

/* Blocks: both ranks run the same number of steps. */

typedef void (*block)(int size, long count);

static void pingpong_sendrecv(int size, long count)
{
    double last = now_ns();
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            send_one(size);
            receive_one(size);
            double now = now_ns();
            samples[i] = (now - last) / 2;
            last = now;
        } else {
            receive_one(size);
            send_one(size);
        }
    }
}

static void pingpong_put(int size, long count)
{
    double last = now_ns();
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            put_one(size);
            await_flag(puts_flagged);
            double now = now_ns();
            samples[i] = (now - last) / 2;
            last = now;
        } else {
            await_flag(puts_flagged + 1);
            put_one(size);
        }
    }
}

static void stream_sendrecv(int size, long count)
{
    MPI_Request requests[WINDOW];
    for (long done = 0; done < count; done += WINDOW) {
        int batch = count - done < WINDOW ? (int)(count - done) : WINDOW;
        for (int i = 0; i < batch; i++) {
            if (rank == 0)
                MPI_Isend(outgoing, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(incoming, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(batch, requests, MPI_STATUSES_IGNORE);
    }
    if (rank == 0)
        receive_one(1);
    else
        send_one(1);
}

static void stream_put(int size, long count)
{
    if (rank == 0) {
        for (long i = 0; i < count; i++)
            MPI_Put(outgoing, size, MPI_BYTE, 1, 0, size, MPI_BYTE, window);
        put_flag();
        await_flag(puts_flagged);
    } else {
        await_flag(puts_flagged + 1);
        put_flag();
    }
}

/* Measuring: a block grows until it fills a quarter of a cell, which is also the warm-up; then one full cell. */

static double timed(block run, int size, long count)
{
    if (rank == 0 && count > samples_room) {
        samples_room = count;
        samples = or_die(realloc(samples, (size_t)count * sizeof *samples));
    }
    MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    double start = now_ns();
    if (count > 0)
        run(size, count);
    return now_ns() - start;
}

static double measure(block run, int size, double cell_ns, long *count)
{
    double took = 0;
    for (*count = 8; took < cell_ns / 4; *count *= 2)
        took = timed(run, size, *count);
    *count = (long)((double)*count / 2 * cell_ns / took) + 1;
    took = timed(run, size, *count);
    timed(run, size, 0);
    return took;
}

static void follow(block run, int size)
{
    for (long count = 1; count > 0;) {
        MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (count > 0)
            run(size, count);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void one_size(block pingpong, block stream, int size, double cell_ns)
{
    if (rank != 0) {
        follow(pingpong, size);
        follow(stream, size);
        return;
    }
    long count;
    measure(pingpong, size, cell_ns, &count);
    qsort(samples, (size_t)count, sizeof *samples, ascending);
    printf("{\"size\":%d,\"p50_ns\":%.1f,\"p99_ns\":%.1f}\n", size, samples[count / 2], samples[count * 99 / 100]);
    double took = measure(stream, size, cell_ns, &count);
    printf("{\"size\":%d,\"msgs_per_s\":%.1f}\n", size, (double)count * 1e9 / took);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int put = argc > 1 && strcmp(argv[1], "put") == 0;
    if (argc < 4 || ranks != 2 || (!put && strcmp(argv[1], "sendrecv") != 0)) {
        fprintf(stderr, "usage: mpirun -np 2 peer sendrecv|put CELL_MS SIZE...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 3; i < argc; i++)
        if (atoi(argv[i]) > largest)
            largest = atoi(argv[i]);
    outgoing = memset(or_die(malloc((size_t)largest)), 1, (size_t)largest);
    incoming = memset(or_die(malloc((size_t)largest)), 2, (size_t)largest);
    if (put) {
        int room = largest + 2 * FLAG_GAP;
        MPI_Win_allocate(room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_base, &window);
        memset(window_base, 0, (size_t)room);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 3; i < argc; i++)
        one_size(put ? pingpong_put : pingpong_sendrecv, put ? stream_put : stream_sendrecv, atoi(argv[i]),
                 atof(argv[2]) * 1e6);
    if (put) {
        MPI_Win_unlock_all(window);
        MPI_Win_free(&window);
    }
    MPI_Finalize();
    return 0;
}
