/* What lies in a process's addresses, by address: a tree of spans, in which those that touch a range are found in as many
 * steps as the tree is deep. Spans may overlap: one that is about to be freed and the next one in its place. Pure, and not
 * thread-safe by itself. */
#ifndef ALIQUOT_SPANS_H
#define ALIQUOT_SPANS_H

#include <stdint.h>

/* The first member of whatever is kept in the tree. */
struct span {
    uint64_t address, end; /* the first byte behind it */
    uint64_t furthest;     /* end of those below it */
    struct span *left, *right;
};

void spans_add(struct span **tree, struct span *span);
void spans_remove(struct span **tree, struct span *span);

/* Of those that a range touches the first, or the next after one that was found; NULL: there is none. */
struct span *spans_next(struct span *tree, const struct span *after, uint64_t address, uint64_t end);

#endif
