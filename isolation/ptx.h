/* How much device memory the variables take that text (PTX) declares, without its code. No clock, no driver. */
#ifndef ALIQUOT_PTX_H
#define ALIQUOT_PTX_H

#include <stdint.h>

/* UNKNOWN_WEIGHT where something is not understood that may be such a variable. */
uint64_t text_variables(const char *text, uint64_t length);

/* Which GPUs it is for, as 90, by its first two lines; 0 where they don't say it plainly. */
unsigned text_target(const char *text, uint64_t length);

#endif
