/*
 * Radix sort: radix_sort [small|bulk [KEYS]], as splitc/examples/radix_sort.rs: keys of 24 bits, by digits of 8 bits
 * from the lowest. A scan over the ranks' counts says where each key goes; it goes there in a message of its own, or
 * with its neighbours in bulk. Each message says where its keys belong: the receiver knows only how many will come.
 */
#include "common.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_BITS = 24, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, WINDOW = 64, TAG_SORTED = KEY_BITS };

/* Keys of each rank's block, and how many this rank has. */
static size_t block, own;

/* A message: where its keys belong in the receiver's block, and the keys. */
struct packet {
    uint32_t at, keys[1];
};

static uint32_t key_of(size_t index)
{
    return (uint32_t)random_of(index) & ((1 << KEY_BITS) - 1);
}

static size_t digit(uint32_t key, int shift)
{
    return key >> shift & (DIGITS - 1);
}

static void count_digits(const uint32_t *keys, size_t count, int shift, uint64_t counts[DIGITS])
{
    memset(counts, 0, DIGITS * sizeof counts[0]);
    for (size_t i = 0; i < count; i++)
        counts[digit(keys[i], shift)]++;
}

/* Packets of one key that come in, from anybody, in the order in which they were waited for. */
struct inbox {
    struct packet packets[WINDOW];
    MPI_Request requests[WINDOW];
    size_t count, posted, come;
    int tag;
};

static void post(struct inbox *inbox)
{
    size_t slot = inbox->posted++ % WINDOW;
    MPI_Irecv(&inbox->packets[slot], sizeof(struct packet), MPI_BYTE, MPI_ANY_SOURCE, inbox->tag, MPI_COMM_WORLD,
              &inbox->requests[slot]);
}

static void take(struct inbox *inbox, uint32_t *into, bool all)
{
    while (inbox->come < inbox->count) {
        size_t slot = inbox->come % WINDOW;
        int done = 1;
        if (all)
            MPI_Wait(&inbox->requests[slot], MPI_STATUS_IGNORE);
        else
            MPI_Test(&inbox->requests[slot], &done, MPI_STATUS_IGNORE);
        if (!done)
            return;
        into[inbox->packets[slot].at] = inbox->packets[slot].keys[0];
        inbox->come++;
        if (inbox->posted < inbox->count)
            post(inbox);
    }
}

static void send_keys(const uint32_t *mine, uint32_t *into, int shift, size_t next[DIGITS], size_t coming)
{
    static struct inbox inbox;
    inbox.count = coming;
    inbox.posted = inbox.come = 0;
    inbox.tag = shift;
    while (inbox.posted < coming && inbox.posted < WINDOW)
        post(&inbox);
    size_t sent = 0;
    for (size_t i = 0; i < own; i++) {
        size_t to = next[digit(mine[i], shift)]++;
        if (to / block == (size_t)rank) {
            into[to % block] = mine[i];
            continue;
        }
        struct packet packet = {(uint32_t)(to % block), {mine[i]}};
        MPI_Send(&packet, sizeof packet, MPI_BYTE, (int)(to / block), shift, MPI_COMM_WORLD);
        if (++sent % 32 == 0)
            take(&inbox, into, false);
    }
    take(&inbox, into, true);
}

/* Takes in a packet of many keys: how many. */
static size_t take_run(uint32_t *into, int shift, uint32_t *buffer)
{
    MPI_Status status;
    int bytes;
    MPI_Recv(buffer, (int)((block + 1) * sizeof(uint32_t)), MPI_BYTE, MPI_ANY_SOURCE, shift, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    size_t count = (size_t)bytes / sizeof(uint32_t) - 1;
    memcpy(into + buffer[0], buffer + 1, count * sizeof(uint32_t));
    return count;
}

/* Puts the keys of each digit side by side, and sends them as one, cut where another rank's block begins. */
static void send_runs(const uint32_t *mine, uint32_t *into, int shift, const uint64_t counts[DIGITS],
                      size_t next[DIGITS], size_t coming)
{
    size_t begins[DIGITS + 1] = {0}, fill[DIGITS], most = DIGITS + (size_t)ranks, sent = 0, used = 0, come = 0;
    for (int d = 0; d < DIGITS; d++) {
        fill[d] = begins[d];
        begins[d + 1] = begins[d] + counts[d];
    }
    uint32_t *ordered = room(own, sizeof(uint32_t)), *buffer = room(block + 1, sizeof(uint32_t));
    for (size_t i = 0; i < own; i++)
        ordered[fill[digit(mine[i], shift)]++] = mine[i];
    /* Each run with its place before it. */
    uint32_t *packets = room(own + most, sizeof(uint32_t));
    MPI_Request *requests = room(most, sizeof(MPI_Request));
    for (int d = 0; d < DIGITS; d++) {
        const uint32_t *run = ordered + begins[d];
        for (size_t left = counts[d], to = next[d]; left > 0;) {
            size_t here = block - to % block < left ? block - to % block : left;
            if (to / block == (size_t)rank) {
                memcpy(into + to % block, run, here * sizeof(uint32_t));
            } else {
                uint32_t *packet = packets + used;
                packet[0] = (uint32_t)(to % block);
                memcpy(packet + 1, run, here * sizeof(uint32_t));
                used += here + 1;
                MPI_Isend(packet, (int)((here + 1) * sizeof(uint32_t)), MPI_BYTE, (int)(to / block), shift,
                          MPI_COMM_WORLD, &requests[sent++]);
            }
            run += here;
            to += here;
            left -= here;
        }
        for (int any = 1; come < coming && any;) {
            MPI_Iprobe(MPI_ANY_SOURCE, shift, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
            if (any)
                come += take_run(into, shift, buffer);
        }
    }
    while (come < coming)
        come += take_run(into, shift, buffer);
    MPI_Waitall((int)sent, requests, MPI_STATUSES_IGNORE);
    free(ordered);
    free(buffer);
    free(packets);
    free(requests);
}

/* How many of this rank's keys, from `next` on, go to its own block. */
static size_t staying(const uint64_t counts[DIGITS], const size_t next[DIGITS])
{
    size_t first = (size_t)rank * block, end = first + block, stay = 0;
    for (int d = 0; d < DIGITS; d++) {
        size_t from = next[d] > first ? next[d] : first, to = next[d] + counts[d] < end ? next[d] + counts[d] : end;
        stay += to > from ? to - from : 0;
    }
    return stay;
}

/* Sorts an array that has a block at each rank. */
static void sort(uint32_t *keys, bool bulk)
{
    uint32_t *mine = room(own, sizeof(uint32_t));
    for (int shift = 0; shift < KEY_BITS; shift += DIGIT_BITS) {
        memcpy(mine, keys, own * sizeof(uint32_t));
        uint64_t counts[DIGITS], upto[DIGITS], all[DIGITS], lower = 0;
        count_digits(mine, own, shift, counts);
        MPI_Scan(counts, upto, DIGITS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(counts, all, DIGITS, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        size_t next[DIGITS];
        for (int d = 0; d < DIGITS; d++) {
            next[d] = lower + upto[d] - counts[d];
            lower += all[d];
        }
        size_t coming = own - staying(counts, next);
        if (bulk)
            send_runs(mine, keys, shift, counts, next, coming);
        else
            send_keys(mine, keys, shift, next, coming);
    }
    free(mine);
}

/* The same on one processor: the sorted keys. */
static uint32_t *serial(uint32_t *keys, size_t total)
{
    for (int shift = 0; shift < KEY_BITS; shift += DIGIT_BITS) {
        uint64_t counts[DIGITS];
        size_t next[DIGITS], lower = 0;
        count_digits(keys, total, shift, counts);
        for (int d = 0; d < DIGITS; d++) {
            next[d] = lower;
            lower += counts[d];
        }
        uint32_t *sorted = room(total, sizeof(uint32_t));
        for (size_t i = 0; i < total; i++)
            sorted[next[digit(keys[i], shift)]++] = keys[i];
        free(keys);
        keys = sorted;
    }
    return keys;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    bool bulk = bulk_wanted(argc, argv);
    size_t total = argument(argc, argv, 2, (size_t)1 << 18);
    block = (total + (size_t)ranks - 1) / (size_t)ranks;
    block = block > 0 ? block : 1;
    size_t first = (size_t)rank * block < total ? (size_t)rank * block : total;
    own = total - first < block ? total - first : block;
    uint32_t *keys = room(own, sizeof(uint32_t));
    for (size_t i = 0; i < own; i++)
        keys[i] = key_of(first + i);
    double begun = all_now_ms();
    sort(keys, bulk);
    double together = all_now_ms() - begun;
    if (rank != 0) {
        leave_alone();
        MPI_Send(keys, (int)own, MPI_UINT32_T, 0, TAG_SORTED, MPI_COMM_WORLD);
    } else {
        uint32_t *all = room(total, sizeof(uint32_t)), *came = room(total, sizeof(uint32_t));
        uint64_t *expected = room(total, sizeof(uint64_t));
        for (size_t i = 0; i < total; i++)
            expected[i] = all[i] = key_of(i);
        sort_numbers(expected, total);
        double start = now_ms();
        uint32_t *sorted = serial(all, total);
        double alone = now_ms() - start;
        leave_alone();
        memcpy(came, keys, own * sizeof(uint32_t));
        for (size_t from = 1, at = own; from < (size_t)ranks; from++) {
            MPI_Recv(came + at, (int)(total - at), MPI_UINT32_T, (int)from, TAG_SORTED, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            at = (from + 1) * block < total ? (from + 1) * block : total;
        }
        bool right = true;
        for (size_t i = 0; i < total; i++)
            right = right && came[i] == expected[i] && sorted[i] == expected[i];
        report(bulk ? "radix sort, bulk" : "radix sort, short messages", together, alone, right);
    }
    MPI_Finalize();
    return 0;
}
