#define _POSIX_C_SOURCE 200809L
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int rank, ranks;

void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

void die(const char *why)
{
    fprintf(stderr, "rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

void *room(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL)
        die("out of memory");
    return memory;
}

size_t argument(int argc, char **argv, int number, size_t otherwise)
{
    if (argc <= number)
        return otherwise;
    char *end;
    unsigned long long value = strtoull(argv[number], &end, 10);
    if (*argv[number] == 0 || *end != 0)
        die("an argument is no number");
    return (size_t)value;
}

bool bulk_wanted(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "bulk") == 0)
        return true;
    if (strcmp(argv[1], "small") != 0)
        die("the first argument is small or bulk");
    return false;
}

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

double all_now_ms(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return now_ms();
}

void leave_alone(void)
{
    enum { TAG_ALONE = 100 };
    if (rank == 0) {
        for (int to = 1; to < ranks; to++)
            MPI_Send(NULL, 0, MPI_BYTE, to, TAG_ALONE, MPI_COMM_WORLD);
        return;
    }
    MPI_Request request;
    MPI_Irecv(NULL, 0, MPI_BYTE, 0, TAG_ALONE, MPI_COMM_WORLD, &request);
    for (int done = 0; !done;) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
}

void report(const char *what, double together_ms, double serial_ms, bool right)
{
    if (!right)
        die("not what a serial run comes to");
    printf("%s: %.2f ms on %d ranks, %.2f ms serial, %.2f x, verified\n", what, together_ms, ranks, serial_ms,
           serial_ms / together_ms);
}
