/* Contexts are made, ended and limited one at a time: what is noted of one must not be taken for the next one's in its place. */
#ifndef ALIQUOT_CONTEXTS_H
#define ALIQUOT_CONTEXTS_H

void contexts_lock(void);
void contexts_unlock(void);

#endif
