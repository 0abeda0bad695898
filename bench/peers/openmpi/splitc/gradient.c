/*
 * Conjugate gradients for the five-point matrix of a square grid: gradient [SIDE [ITERATIONS]], as
 * splitc/examples/gradient.rs. Each rank has some rows, and sends its outermost to its neighbours in each iteration.
 */
#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UP, DOWN, TAG_SOLUTION };

static size_t side;

/* The right-hand side. */
static double *load(size_t first, size_t end)
{
    double *points = room(end - first, sizeof(double));
    for (size_t point = first; point < end; point++)
        points[point - first] = (double)random_of(point) / 18446744073709551615.0;
    return points;
}

/* The sum over all ranks, or of this one alone. */
static double sum(double part, bool together)
{
    if (together)
        MPI_Allreduce(MPI_IN_PLACE, &part, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return part;
}

/* Fetches the rows beyond this rank's. */
static void step(double *vector, size_t count)
{
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    int len = (int)side;
    MPI_Request requests[4];
    MPI_Irecv(vector, len, MPI_DOUBLE, above, DOWN, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(vector + side + count, len, MPI_DOUBLE, below, UP, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(vector + side, len, MPI_DOUBLE, above, UP, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(vector + count, len, MPI_DOUBLE, below, DOWN, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

/* Solves for the rows of one rank, or for all. */
static double *solve(size_t iterations, const double *right, size_t count, bool together)
{
    double *solution = room(count, sizeof(double)), *residual = room(count, sizeof(double));
    double *direction = room(count + 2 * side, sizeof(double)), *image = room(count, sizeof(double));
    double *inner = direction + side;
    memcpy(residual, right, count * sizeof(double));
    memcpy(inner, right, count * sizeof(double));
    double square = sum(product(residual, residual, count), together);
    for (size_t i = 0; i < iterations; i++) {
        if (together)
            step(direction, count);
        apply(side, direction, image, count / side);
        double length = square / sum(product(inner, image, count), together);
        add(solution, length, inner, count);
        add(residual, -length, image, count);
        double next = sum(product(residual, residual, count), together), keep = next / square;
        for (size_t at = 0; at < count; at++)
            inner[at] = residual[at] + keep * inner[at];
        square = next;
    }
    return solution;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    side = argument(argc, argv, 1, 256);
    size_t iterations = argument(argc, argv, 2, 50);
    if (side < (size_t)ranks)
        die("SIDE has to be at least the number of ranks");
    size_t first = share(side, rank) * side, count = share(side, rank + 1) * side - first;
    double begun = all_now_ms();
    double *mine = solve(iterations, load(first, first + count), count, true);
    double together = all_now_ms() - begun;
    if (rank != 0) {
        leave_alone();
        MPI_Send(mine, (int)count, MPI_DOUBLE, 0, TAG_SOLUTION, MPI_COMM_WORLD);
    } else {
        double *right = load(0, side * side), most = 0, start = now_ms();
        double *expected = solve(iterations, right, side * side, false);
        double alone = now_ms() - start, *came = room(side * side, sizeof(double));
        leave_alone();
        memcpy(came, mine, count * sizeof(double));
        for (int from = 1; from < ranks; from++)
            MPI_Recv(came + share(side, from) * side, (int)((share(side, from + 1) - share(side, from)) * side),
                     MPI_DOUBLE, from, TAG_SOLUTION, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (size_t i = 0; i < side * side; i++)
            most = fmax(most, fabs(expected[i]));
        /* Sums were added in another order. */
        bool near = true;
        for (size_t i = 0; i < side * side; i++)
            near = near && fabs(came[i] - expected[i]) <= 1e-9 * most;
        report("conjugate gradient", together, alone, near);
    }
    MPI_Finalize();
    return 0;
}
