/* Whether a descriptor of exported memory is still open: in this process, in another one, or on its way to one.
 *
 * Linux ties a lock by `F_OFD_SETLK` to what a descriptor stands for, and drops it when the last descriptor of that is
 * closed, wherever that was. So each descriptor gets a lock of one byte that nothing else is locked by, and whether
 * any of them is open the kernel says of that byte. Who lifts such a lock himself falsifies his account. */
#ifndef ALIQUOT_SENT_H
#define ALIQUOT_SENT_H

#include <stdbool.h>
#include <stdint.h>

/* All descriptors that one handle was exported by. */
struct sent;

/* Mark one more descriptor, the first with NULL there; false if nobody will be able to tell when it is closed. */
bool sent_mark(struct sent **sent, int file);

/* True also where nobody can tell. */
bool sent_is_open(const struct sent *sent);

/* A number that no other one of this process has. */
uint64_t sent_number(const struct sent *sent);

#endif
