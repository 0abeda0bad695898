/*
 * Blocked matrix multiply: matmul [BLOCKS [SIDE]], as splitc/examples/matmul.rs. Each rank has every so-manieth block
 * of each matrix, and computes its blocks of the product. Everybody knows who needs which block when, so it is sent
 * without being asked for: while a rank multiplies two blocks, the next two are on their way.
 */
#include "common.h"

#include <stdlib.h>
#include <string.h>

enum { FETCHED = 2 };

static size_t blocks, side, area;

/* Which blocks a rank multiplies in a step, and into which; false if it has no such step. */
struct pair {
    size_t to, factor[FETCHED];
};

static bool pair_of(int of, size_t step, struct pair *pair)
{
    size_t to = (size_t)of + step / blocks * (size_t)ranks, k = step % blocks;
    *pair = (struct pair){to, {to / blocks * blocks + k, k * blocks + to % blocks}};
    return to < blocks * blocks;
}

static int owner(size_t block)
{
    return (int)(block % (size_t)ranks);
}

static double element(uint64_t matrix, size_t index)
{
    return (double)random_of(matrix << 40 | index) / 18446744073709551615.0 - 0.5;
}

/* Messages under way for one step. */
struct exchange {
    MPI_Request *requests;
    int count;
};

static void poll(struct exchange *exchange)
{
    int done;
    MPI_Testall(exchange->count, exchange->requests, &done, MPI_STATUSES_IGNORE);
}

/* Adds the product of two blocks to a third; looks after the messages between two rows. */
static void multiply(const double *a, const double *b, double *c, struct exchange *exchange)
{
    for (size_t i = 0; i < side; i++) {
        multiply_row(side, a + i * side, b, c + i * side);
        if (exchange != NULL)
            poll(exchange);
    }
}

/* A rank's blocks of a matrix lie one behind the other. */
static double *local(double *matrix, size_t block)
{
    return matrix + block / (size_t)ranks * area;
}

/* Begins to fetch what a step needs, and to send what the others need in theirs. */
static void fetch(size_t step, double *matrices[FETCHED], double *into[FETCHED], struct exchange *exchange)
{
    struct pair pair;
    exchange->count = 0;
    if (pair_of(rank, step, &pair)) {
        for (int m = 0; m < FETCHED; m++) {
            size_t block = pair.factor[m];
            if (owner(block) == rank)
                memcpy(into[m], local(matrices[m], block), area * sizeof(double));
            else
                MPI_Irecv(into[m], (int)area, MPI_DOUBLE, owner(block), m, MPI_COMM_WORLD,
                          &exchange->requests[exchange->count++]);
        }
    }
    for (int other = 0; other < ranks; other++) {
        if (other == rank || !pair_of(other, step, &pair))
            continue;
        for (int m = 0; m < FETCHED; m++)
            if (owner(pair.factor[m]) == rank)
                MPI_Isend(local(matrices[m], pair.factor[m]), (int)area, MPI_DOUBLE, other, m, MPI_COMM_WORLD,
                          &exchange->requests[exchange->count++]);
    }
}

static void multiply_all(double *matrices[FETCHED], double *result)
{
    struct exchange exchange = {room((size_t)ranks * 2 * FETCHED, sizeof(MPI_Request)), 0};
    double *now[FETCHED], *next[FETCHED], *sum = room(area, sizeof(double));
    for (int m = 0; m < FETCHED; m++) {
        now[m] = room(area, sizeof(double));
        next[m] = room(area, sizeof(double));
    }
    struct pair pair, others;
    fetch(0, matrices, next, &exchange);
    /* Rank 0 has at least as many steps as any. */
    for (size_t step = 0; pair_of(0, step, &others); step++) {
        MPI_Waitall(exchange.count, exchange.requests, MPI_STATUSES_IGNORE);
        for (int m = 0; m < FETCHED; m++) {
            double *came = next[m];
            next[m] = now[m];
            now[m] = came;
        }
        fetch(step + 1, matrices, next, &exchange);
        if (!pair_of(rank, step, &pair))
            continue;
        multiply(now[0], now[1], sum, &exchange);
        if ((step + 1) % blocks == 0) {
            memcpy(local(result, pair.to), sum, area * sizeof(double));
            memset(sum, 0, area * sizeof(double));
        }
    }
    MPI_Waitall(exchange.count, exchange.requests, MPI_STATUSES_IGNORE);
}

/* All of a matrix. */
static double *whole(uint64_t matrix)
{
    size_t all = blocks * blocks * area;
    double *values = room(all, sizeof(double));
    for (size_t i = 0; i < all; i++)
        values[i] = element(matrix, i);
    return values;
}

static double *serial(const double *a, const double *b)
{
    double *c = room(blocks * blocks * area, sizeof(double));
    for (size_t to = 0; to < blocks * blocks; to++)
        for (size_t k = 0; k < blocks; k++)
            multiply(a + (to / blocks * blocks + k) * area, b + (k * blocks + to % blocks) * area, c + to * area, NULL);
    return c;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    blocks = argument(argc, argv, 1, 4);
    side = argument(argc, argv, 2, 128);
    area = side * side;
    size_t all = blocks * blocks, mine = all / (size_t)ranks + 1;
    double *matrices[FETCHED], *result = room(mine * area, sizeof(double));
    for (int m = 0; m < FETCHED; m++) {
        matrices[m] = room(mine * area, sizeof(double));
        for (size_t block = (size_t)rank; block < all; block += (size_t)ranks)
            for (size_t i = 0; i < area; i++)
                local(matrices[m], block)[i] = element((uint64_t)m, block * area + i);
    }
    double begun = all_now_ms();
    multiply_all(matrices, result);
    double together = all_now_ms() - begun;
    if (rank != 0) {
        leave_alone();
        for (size_t block = (size_t)rank; block < all; block += (size_t)ranks)
            MPI_Send(local(result, block), (int)area, MPI_DOUBLE, 0, FETCHED, MPI_COMM_WORLD);
    } else {
        /* Made before the time is taken, as they were for the ranks. */
        const double *a = whole(0), *b = whole(1);
        double start = now_ms();
        double *expected = serial(a, b);
        double alone = now_ms() - start, *came = room(area, sizeof(double));
        leave_alone();
        bool right = true;
        for (size_t block = 0; block < all; block++) {
            double *values = local(result, block);
            if (owner(block) != 0) {
                MPI_Recv(came, (int)area, MPI_DOUBLE, owner(block), FETCHED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                values = came;
            }
            right = right && memcmp(values, expected + block * area, area * sizeof(double)) == 0;
        }
        report("matrix multiply", together, alone, right);
    }
    MPI_Finalize();
    return 0;
}
