/* Enter a handle of physical memory that is charged already; if that can't be, it is released and its charge too. */
#ifndef ALIQUOT_IMPORTS_H
#define ALIQUOT_IMPORTS_H

#include <stdint.h>

#include "driver.h"

CUresult handle_remember(CUhandle handle, int gpu, uint64_t bytes);

#endif
