/*
 * Sample sort: sample_sort [small|bulk [KEYS]], as splitc/examples/sample_sort.rs. Samples of all ranks say which range
 * of keys each rank gets; the keys go there, two in a short message or all in bulk, and are sorted there. A message
 * needs no address: what comes from a rank is written behind what has come from it.
 */
#include "common.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, PAIR = 2, WINDOW = 64, TAG_SAMPLES = 1, TAG_COUNT, TAG_KEYS, TAG_SORTED };

/* What comes from one rank, in messages of up to PAIR numbers, received in place. */
struct inbox {
    uint64_t *into;
    size_t count, posted, come;
    int from, tag;
    MPI_Request requests[WINDOW];
};

static void post(struct inbox *inbox)
{
    size_t left = inbox->count - inbox->posted, len = left < PAIR ? left : PAIR;
    MPI_Irecv(inbox->into + inbox->posted, (int)len, MPI_UINT64_T, inbox->from, inbox->tag, MPI_COMM_WORLD,
              &inbox->requests[inbox->posted / PAIR % WINDOW]);
    inbox->posted += len;
}

static void open_inbox(struct inbox *inbox, int from, int tag, uint64_t *into, size_t count)
{
    *inbox = (struct inbox){.into = into, .count = count, .from = from, .tag = tag};
    while (inbox->posted < count && inbox->posted / PAIR < WINDOW)
        post(inbox);
}

/* Takes in what has come; `all`: waits for the rest of it. */
static void take(struct inbox *inbox, bool all)
{
    while (inbox->come < inbox->count) {
        MPI_Request *oldest = &inbox->requests[inbox->come / PAIR % WINDOW];
        int done = 1;
        if (all)
            MPI_Wait(oldest, MPI_STATUS_IGNORE);
        else
            MPI_Test(oldest, &done, MPI_STATUS_IGNORE);
        if (!done)
            return;
        size_t left = inbox->count - inbox->come;
        inbox->come += left < PAIR ? left : PAIR;
        if (inbox->posted < inbox->count)
            post(inbox);
    }
}

/* Sends numbers to a rank, and takes in what comes from another. */
static void exchange(int to, const uint64_t *out, size_t count, int from, uint64_t *in, size_t coming, int tag,
                     bool bulk)
{
    if (bulk) {
        MPI_Request requests[2];
        MPI_Irecv(in, (int)coming, MPI_UINT64_T, from, tag, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, (int)count, MPI_UINT64_T, to, tag, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        return;
    }
    struct inbox inbox;
    open_inbox(&inbox, from, tag, in, coming);
    for (size_t at = 0, number = 1; at < count; at += PAIR, number++) {
        MPI_Send(out + at, (int)(count - at < PAIR ? count - at : PAIR), MPI_UINT64_T, to, tag, MPI_COMM_WORLD);
        if (number % 32 == 0)
            take(&inbox, false);
    }
    take(&inbox, true);
}

/* The rank whose range a key lies in: how many ends are not above it. */
static size_t range_of(const uint64_t *ends, size_t count, uint64_t key)
{
    size_t low = 0;
    while (count > 0) {
        size_t half = count / 2;
        if (ends[low + half] <= key) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return low;
}

/* Sorts all ranks' keys. The keys of this rank's range, and how many there are. */
static uint64_t *sort(const uint64_t *keys, size_t count, bool bulk, size_t *total)
{
    size_t size = (size_t)ranks;
    uint64_t offered[SAMPLES], *ends = room(size, sizeof(uint64_t));
    for (size_t i = 0; i < SAMPLES; i++)
        offered[i] = i * count / SAMPLES < count ? keys[i * count / SAMPLES] : 0;
    if (rank == 0) {
        uint64_t *all = room(size * SAMPLES, sizeof(uint64_t));
        memcpy(all, offered, sizeof offered);
        for (int from = 1; from < ranks; from++) {
            uint64_t *into = all + (size_t)from * SAMPLES;
            exchange(MPI_PROC_NULL, NULL, 0, from, into, SAMPLES, TAG_SAMPLES, bulk);
        }
        sort_numbers(all, size * SAMPLES);
        for (size_t at = 1; at < size; at++)
            ends[at - 1] = all[at * SAMPLES];
    } else {
        exchange(0, offered, SAMPLES, MPI_PROC_NULL, NULL, 0, TAG_SAMPLES, bulk);
    }
    MPI_Bcast(ends, ranks - 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);

    /* The keys of each range, one behind the other. */
    uint64_t **ranges = room(size, sizeof *ranges), *counts = room(size, sizeof *counts);
    size_t *rooms = room(size, sizeof *rooms);
    for (size_t to = 0; to < size; to++) {
        rooms[to] = count / size * 2 + 1;
        ranges[to] = room(rooms[to], sizeof(uint64_t));
    }
    for (size_t i = 0; i < count; i++) {
        size_t to = range_of(ends, size - 1, keys[i]);
        if (counts[to] == rooms[to]) {
            rooms[to] *= 2;
            ranges[to] = realloc(ranges[to], rooms[to] * sizeof(uint64_t));
            if (ranges[to] == NULL)
                die("out of memory");
        }
        ranges[to][counts[to]++] = keys[i];
    }
    uint64_t *theirs = room(size, sizeof *theirs);
    for (int far = 0; far < ranks; far++) {
        int to = (rank + far) % ranks, from = (rank + ranks - far) % ranks;
        exchange(to, &counts[to], 1, from, &theirs[from], 1, TAG_COUNT, true);
    }
    size_t *starts = room(size, sizeof *starts);
    *total = 0;
    for (size_t from = 0; from < size; from++) {
        starts[from] = *total;
        *total += theirs[from];
    }
    uint64_t *place = room(*total, sizeof(uint64_t));
    memcpy(place + starts[rank], ranges[rank], counts[rank] * sizeof(uint64_t));
    for (int far = 1; far < ranks; far++) {
        int to = (rank + far) % ranks, from = (rank + ranks - far) % ranks;
        exchange(to, ranges[to], counts[to], from, place + starts[from], theirs[from], TAG_KEYS, bulk);
    }
    sort_numbers(place, *total);
    return place;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    bool bulk = bulk_wanted(argc, argv);
    size_t total = argument(argc, argv, 2, (size_t)1 << 18);
    size_t first = share(total, rank), own = share(total, rank + 1) - first, count;
    uint64_t *keys = room(own, sizeof(uint64_t));
    for (size_t i = 0; i < own; i++)
        keys[i] = random_of(first + i);
    double begun = all_now_ms();
    uint64_t *mine = sort(keys, own, bulk, &count);
    double together = all_now_ms() - begun;
    if (rank != 0) {
        leave_alone();
        MPI_Send(mine, (int)count, MPI_UINT64_T, 0, TAG_SORTED, MPI_COMM_WORLD);
    } else {
        uint64_t *expected = room(total, sizeof(uint64_t)), *sorted = room(total + 1, sizeof(uint64_t));
        for (size_t i = 0; i < total; i++)
            expected[i] = random_of(i);
        double start = now_ms();
        sort_numbers(expected, total);
        double alone = now_ms() - start;
        leave_alone();
        memcpy(sorted, mine, count * sizeof(uint64_t));
        for (int from = 1; from < ranks; from++) {
            MPI_Status status;
            int came;
            MPI_Recv(sorted + count, (int)(total - count), MPI_UINT64_T, from, TAG_SORTED, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_UINT64_T, &came);
            count += (size_t)came;
        }
        bool right = count == total && memcmp(sorted, expected, total * sizeof(uint64_t)) == 0;
        report(bulk ? "sample sort, bulk" : "sample sort, short messages", together, alone, right);
    }
    MPI_Finalize();
    return 0;
}
