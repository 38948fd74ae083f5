/* What multicast objects are bound to. All of this under the lock of handles (imports.h). */
#ifndef ALIQUOT_BINDINGS_H
#define ALIQUOT_BINDINGS_H

#include <stdbool.h>

#include "driver.h"

/* A call that is not over and goes on without the lock: by its handle, or by where what it binds is mapped. */
struct binding {
    struct binding *next;
    CUhandle handle;
    CUdeviceptr from, end;
    int gpu; /* of the memory that it holds meanwhile; -1: none that is to be let go of */
};

void binding_begin(struct binding *binding);
void binding_end(const struct binding *binding);

/* Whether such a call is under way for a handle of that number, which is new. Nothing is let go of by that number. */
bool is_being_bound(CUhandle handle);
bool is_being_bound_at(CUdeviceptr address, size_t bytes);

/* An object's number may be another's from now on: what it was bound to nobody unbinds by it. */
void bound_for_ever(CUhandle object);

#endif
