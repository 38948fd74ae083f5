/* Managed memory of a slice over several GPUs: what is charged where (managed_core.h), and what the driver is asked for it.
 * To place is advice: where there is no room for it it is left out, and the program goes on as with memory that is where it
 * was. A slice of one GPU has none of this. */
#ifndef ALIQUOT_MANAGED_H
#define ALIQUOT_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "managed_core.h"

/* Around the driver's taking of a block, whose home is that GPU. False if calls that place are under way for a minute and
 * would leave it no room where they may bring it: then the driver is not asked. */
bool managed_taking(struct taking *taking, int home, uint64_t bytes);
void managed_taken(struct taking *taking);

/* It was taken, on the GPU of the range; false if there is no memory to remember it. The block is NULL where nobody need
 * remember it. */
bool managed_enter(struct taking *taking, struct range range, struct managed **block);
/* Before the driver is asked to free it, and when it has. */
void managed_vacated(struct managed *block);
void managed_leave(struct managed *block);

/* What a placing call is given to. */
struct lane managed_lane(CUstream stream, bool per_thread);
struct lane managed_advice(void);

/* A call is about to place ranges, all or none; false if there is no room, and the driver need not be asked. After it, with
 * what it answered, managed_end. `placing` is NULL where nobody need know of it. */
bool managed_begin(struct placing **placing, const struct range *ranges, size_t count, struct lane lane, bool copies);
void managed_end(struct placing *placing, CUresult result);

/* End a stream, whose number may be another one's then. */
CUresult managed_end_stream(CUstream stream, CUresult (*end)(CUstream stream));

/* Take back what has left a GPU by now. */
void managed_settle(void);

/* Between these two the driver is asked nothing of it. */
void managed_pause(void);
void managed_resume(void);

/* A context is about to end, and then has, or was refused; meanwhile the driver is asked nothing of it. */
void managed_ends(CUcontext context);
void managed_ended(CUcontext context, bool gone);
void managed_ends_green(CUgreenCtx green, CUcontext part);

#endif
