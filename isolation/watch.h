/* A thread of ours that looks again and again while something is in flight, and sleeps when nothing is. */
#ifndef ALIQUOT_WATCH_H
#define ALIQUOT_WATCH_H

#include <stdbool.h>

/* Let it look from now on, until `look` answers that there is nothing more to look at. It is always the same one. */
void watch_wake(bool (*look)(void));

/* A child has no such thread yet. */
void watch_forget(void);

#endif
