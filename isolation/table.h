/* The driver's functions by index: what each is called, what becomes of it, and where the real one is. */
#ifndef ALIQUOT_TABLE_H
#define ALIQUOT_TABLE_H

#include "copies.h"
#include "driver.h"
#include "names.h"

enum rule { FORWARDED, OURS, REFUSED };

struct driver_function {
    const char *name, *base;
    enum rule rule;
    int since, per_thread;
    void (*ours)(void);
};

extern const struct driver_function driver_functions[DRIVER_NAMES];
/* What the stubs jump to, and what the real driver has under that name (or what says that it has not). */
extern void *driver_stubs[DRIVER_NAMES], *driver_real[DRIVER_NAMES];

#define REAL(name) ((__typeof__(&name))driver_real[F_##name])
#define REAL_AS(index, name) ((__typeof__(&name))driver_real[index])
#define EXPORT __attribute__((visibility("default")))

/* Whoever asks is told last, when what was answered is noted: in his memory another thread could put something else
 * between the driver's writing and our reading. So the driver answers into a place of ours. */
#define ANSWERED(place, answer, call)                                    \
    ({                                                                   \
        CUresult answered = (place) ? (call) : CUDA_ERROR_INVALID_VALUE; \
        if (answered == CUDA_SUCCESS) *(place) = (answer);               \
        answered;                                                        \
    })

#endif
