/* A process that is put aside (cuCheckpointProcess…) stays charged for what it will take again, so that it always finds
 * room. On another GPU it would take what was charged on this one. */
#include "table.h"

EXPORT CUresult cuCheckpointProcessRestore(int process, CUcheckpointRestoreArgs *how) {
    if (how && how->pair_count) return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuCheckpointProcessRestore)(process, how);
}
