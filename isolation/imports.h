/* Physical memory by handle, for those who get a handle otherwise than by cuMemCreate. */
#ifndef ALIQUOT_IMPORTS_H
#define ALIQUOT_IMPORTS_H

#include <stdint.h>

#include "driver.h"

/* Around what the driver does with a handle and what is noted of it, so that no thread comes in between. */
void handles_lock(void);
void handles_unlock(void);

/* Under the lock: have one more hold its memory (its GPU, or -1 if it is not ours), one less, or one for ever. */
int handle_hold(CUhandle handle);
void handle_let_go(CUhandle handle);
void handle_keep(CUhandle handle);

/* Enter a handle that is charged already; if that can't be, it is released and its charge too. */
CUresult handle_remember(CUhandle handle, int gpu, uint64_t bytes);

#endif
