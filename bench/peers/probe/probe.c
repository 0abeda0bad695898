/*
 * What this machine can do at this moment, measured beside the peers so that their figures can be judged.
 *
 * usage: probe CORE_A CORE_B
 * prints one JSON object:
 *   cacheline_ns  one way of an 8-byte flag between the two cores, median over blocks of round trips
 *   clock_ns      one read of CLOCK_MONOTONIC, which every own program here pays once per round trip
 *   copy_gb_s     memcpy of 1 MiB between two warm private buffers on CORE_A
 *   lost_percent  part of a spin on CORE_A that went to something else (gaps above 1 us)
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 400, TRIPS = 500, COPIES = 400, MIB = 1 << 20 };

struct line {
    _Alignas(128) atomic_uint value;
};
static struct line ping, pong;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("probe: cannot pin to a core");
        exit(2);
    }
}

static void *echo(void *core)
{
    pin(*(int *)core);
    for (unsigned i = 1; i <= BLOCKS * TRIPS; i++) {
        while (atomic_load_explicit(&ping.value, memory_order_acquire) != i)
            ;
        atomic_store_explicit(&pong.value, i, memory_order_release);
    }
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cacheline_ns(int *other_core)
{
    static double block_ns[BLOCKS];
    pthread_t thread;
    unsigned trip = 0;

    if (pthread_create(&thread, NULL, echo, other_core) != 0)
        exit(2);
    for (int block = 0; block < BLOCKS; block++) {
        uint64_t start = now_ns();
        for (int i = 0; i < TRIPS; i++) {
            trip++;
            atomic_store_explicit(&ping.value, trip, memory_order_release);
            while (atomic_load_explicit(&pong.value, memory_order_acquire) != trip)
                ;
        }
        block_ns[block] = (double)(now_ns() - start) / (2.0 * TRIPS);
    }
    pthread_join(thread, NULL);
    qsort(block_ns, BLOCKS, sizeof block_ns[0], ascending);
    return block_ns[BLOCKS / 2];
}

static double clock_ns(void)
{
    enum { READS = 100000 };
    uint64_t start = now_ns(), last = start;
    for (int i = 0; i < READS; i++)
        last = now_ns();
    return (double)(last - start) / READS;
}

static double copy_gb_s(void)
{
    char *from = malloc(MIB), *to = malloc(MIB);
    if (from == NULL || to == NULL)
        exit(2);
    memset(from, 1, MIB);
    memset(to, 2, MIB);
    uint64_t start = now_ns();
    for (int i = 0; i < COPIES; i++) {
        memcpy(to, from, MIB);
        __asm__ volatile("" ::"r"(to), "r"(from) : "memory");
    }
    double gb_s = (double)MIB * COPIES / (double)(now_ns() - start);
    free(from);
    free(to);
    return gb_s;
}

static double lost_percent(void)
{
    enum { SPIN_NS = 100000000, GAP_NS = 1000 };
    uint64_t start = now_ns(), last = start, lost = 0;
    while (last - start < SPIN_NS) {
        uint64_t now = now_ns();
        if (now - last > GAP_NS)
            lost += now - last;
        last = now;
    }
    return 100.0 * (double)lost / (double)(last - start);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: probe CORE_A CORE_B\n");
        return 2;
    }
    int other_core = atoi(argv[2]);
    pin(atoi(argv[1]));
    double cacheline = cacheline_ns(&other_core);
    printf("{\"cacheline_ns\":%.1f,\"clock_ns\":%.1f,\"copy_gb_s\":%.1f,\"lost_percent\":%.2f}\n", cacheline,
           clock_ns(), copy_gb_s(), lost_percent());
    return 0;
}
