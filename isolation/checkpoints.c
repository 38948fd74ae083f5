/* A process that is put aside (cuCheckpointProcess…) stays charged for what it will take again, so that it always finds
 * room. On another GPU it would take what was charged on this one; and newer drivers hand its memory to whoever asks, by
 * words that were reserved once: that would be held by one process and charged to another, who may end. So whatever is
 * asked for beyond the plain way is refused. */
#include "table.h"

static bool is_zero(const char *words, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (words[i]) return false;
    return true;
}

EXPORT CUresult cuCheckpointProcessCheckpoint(int process, CUcheckpointCheckpointArgs *how) {
    if (!how) return REAL(cuCheckpointProcessCheckpoint)(process, how);
    CUcheckpointCheckpointArgs told = *how; /* as in cuMemCreate */
    if (!is_zero(told.reserved, sizeof told.reserved)) return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuCheckpointProcessCheckpoint)(process, &told);
}

EXPORT CUresult cuCheckpointProcessRestore(int process, CUcheckpointRestoreArgs *how) {
    if (!how) return REAL(cuCheckpointProcessRestore)(process, how);
    CUcheckpointRestoreArgs told = *how;
    if (told.pair_count || !is_zero(told.reserved, sizeof told.reserved)) return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuCheckpointProcessRestore)(process, &told);
}
