/*
 * Connected components of a square mesh of which some edges are missing: components [SIDE [PERCENT]], as
 * splitc/examples/components.rs. Each rank joins what is within its strip of rows; then the labels at the borders go
 * over, a short message for each edge, until no label changes anywhere. Both ends know the edges, so nobody has to ask.
 */
#include "common.h"

#include <stdlib.h>
#include <string.h>

enum { ABOVE, BELOW, WAYS, TAG_LABELS = WAYS };

static size_t side;
static uint64_t percent;

/* The labels of this rank's points. */
static uint64_t *components(size_t first_row, size_t end_row)
{
    size_t first = first_row * side, count = (end_row - first_row) * side, last = count - side, edges[WAYS] = {0};
    size_t *roots = mesh_join(side, percent, first_row, end_row);
    uint64_t *label = room(count, sizeof(uint64_t)), *coming[WAYS];
    for (size_t point = 0; point < count; point++)
        label[point] = first + point;
    /* For each edge across a border: the point here. */
    size_t *points[WAYS];
    for (int way = 0; way < WAYS; way++) {
        points[way] = room(side, sizeof(size_t));
        coming[way] = room(side, sizeof(uint64_t));
    }
    for (size_t x = 0; x < side; x++) {
        if (rank > 0 && mesh_has(side, percent, first - side + x, true))
            points[ABOVE][edges[ABOVE]++] = x;
        if (rank + 1 < ranks && mesh_has(side, percent, first + last + x, true))
            points[BELOW][edges[BELOW]++] = last + x;
    }
    MPI_Request *requests = room(WAYS * side, sizeof(MPI_Request));
    for (int changed = 1; changed;) {
        int count_of = 0;
        for (int way = 0; way < WAYS; way++)
            for (size_t edge = 0; edge < edges[way]; edge++)
                MPI_Irecv(&coming[way][edge], 1, MPI_UINT64_T, way == ABOVE ? rank - 1 : rank + 1, WAYS - 1 - way,
                          MPI_COMM_WORLD, &requests[count_of++]);
        for (int way = 0; way < WAYS; way++)
            for (size_t edge = 0; edge < edges[way]; edge++)
                MPI_Send(&label[roots[points[way][edge]] - first], 1, MPI_UINT64_T,
                         way == ABOVE ? rank - 1 : rank + 1, way, MPI_COMM_WORLD);
        MPI_Waitall(count_of, requests, MPI_STATUSES_IGNORE);
        int here = 0;
        for (int way = 0; way < WAYS; way++) {
            for (size_t edge = 0; edge < edges[way]; edge++) {
                uint64_t *mine = &label[roots[points[way][edge]] - first];
                if (coming[way][edge] < *mine) {
                    *mine = coming[way][edge];
                    here = 1;
                }
            }
        }
        MPI_Allreduce(&here, &changed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    uint64_t *all = room(count, sizeof(uint64_t));
    for (size_t point = 0; point < count; point++)
        all[point] = label[roots[point] - first];
    return all;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    side = argument(argc, argv, 1, 512);
    percent = argument(argc, argv, 2, 60);
    if (side < (size_t)ranks)
        die("SIDE has to be at least the number of ranks");
    double begun = all_now_ms();
    uint64_t *labels = components(share(side, rank), share(side, rank + 1));
    double together = all_now_ms() - begun;
    size_t count = (share(side, rank + 1) - share(side, rank)) * side;
    if (rank != 0) {
        leave_alone();
        MPI_Send(labels, (int)count, MPI_UINT64_T, 0, TAG_LABELS, MPI_COMM_WORLD);
    } else {
        double start = now_ms();
        size_t *expected = mesh_join(side, percent, 0, side);
        double alone = now_ms() - start;
        leave_alone();
        uint64_t *came = room(side * side, sizeof(uint64_t));
        memcpy(came, labels, count * sizeof(uint64_t));
        for (int from = 1; from < ranks; from++)
            MPI_Recv(came + share(side, from) * side, (int)((share(side, from + 1) - share(side, from)) * side),
                     MPI_UINT64_T, from, TAG_LABELS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        bool right = true;
        for (size_t point = 0; point < side * side; point++)
            right = right && came[point] == expected[point];
        report("connected components", together, alone, right);
    }
    MPI_Finalize();
    return 0;
}
