/* Give back the charge of something that the driver has freed by itself. */
#ifndef ALIQUOT_RELEASE_H
#define ALIQUOT_RELEASE_H

#include "holdings.h"

void release_holding(const struct holding *holding);

/* Each kind knows how it was charged. */
void blocks_gone(const struct holding *block);
void arrays_gone(const struct holding *array);
void import_gone(const struct holding *import);
void code_gone(const struct holding *code);

#endif
