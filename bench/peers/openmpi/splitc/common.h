/*
 * What the seven programs share: their arguments, random numbers, the clock, and the last line. They are those of
 * splitc/examples, with messages from one rank to another, and verify themselves the same way.
 */
#ifndef COMMON_H
#define COMMON_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern int rank, ranks;

/* Begins MPI; every program calls it first. */
void begin(int *argc, char ***argv);
/* Ends all ranks with a line that says why. */
void die(const char *why);

/* Memory, zeroed, or the program ends. */
void *room(size_t count, size_t bytes);
/* The argument with this number, or a default. */
size_t argument(int argc, char **argv, int number, size_t otherwise);
/* Whether the first argument asks for bulk transfers rather than short messages. */
bool bulk_wanted(int argc, char **argv);

/* First thing of a rank's share of `total` things that are dealt out in runs of nearly the same length. */
static inline size_t share(size_t total, int of)
{
    return (size_t)of * total / (size_t)ranks;
}

/* A random number for each number (SplitMix64). */
static inline uint64_t random_of(uint64_t number)
{
    uint64_t z = (number + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Milliseconds of some clock. */
double now_ms(void);
/* The same when all ranks have come here. */
double all_now_ms(void);

/* Lets rank 0 work alone: the others sleep until it comes here. */
void leave_alone(void);

/* What the programs of splitc/examples compute, by the same code: kernels.rs. */
void sort_numbers(uint64_t *numbers, size_t count);
void multiply_row(size_t side, const double *row, const double *block, double *into);
void add(double *into, double factor, const double *vector, size_t count);
double product(const double *a, const double *b, size_t count);
void apply(size_t side, const double *vector, double *into, size_t rows);
bool mesh_has(size_t side, uint64_t percent, size_t point, bool down);
size_t *mesh_join(size_t side, uint64_t percent, size_t first_row, size_t end_row);

/* Says how long it took, against a serial run; on rank 0. `right`: both came to the same. */
void report(const char *what, double together_ms, double serial_ms, bool right);

#endif
