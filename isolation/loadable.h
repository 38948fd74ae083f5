/* What a driver may load of an entry of a fat binary, and how much device memory that takes.
 *
 * Only what the slice's GPUs can run is loaded, whatever else there is. No clock, no driver but for which GPUs there are. */
#ifndef ALIQUOT_LOADABLE_H
#define ALIQUOT_LOADABLE_H

#include <stdbool.h>
#include <stdint.h>

/* An entry, as a fat binary tells of it. */
struct told {
    unsigned kind, machine; /* which GPUs it is for, as 90; 0: it does not say */
    uint64_t flags, packed, unpacked;
    const unsigned char *content;
    uint64_t bytes; /* with what may follow what is packed */
};

struct verdict {
    bool may_load;  /* by a GPU of the slice */
    uint64_t bytes; /* then; UNKNOWN_WEIGHT if it can't be told */
};

struct verdict judge_entry(const struct told *entry);

#endif
