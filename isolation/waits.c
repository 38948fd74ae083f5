/* Waiting for the GPU is where much becomes known at once: launches are done, pools have given back, others have closed
 * what was exported, and what was placed elsewhere has left. */
#include "holdings.h"
#include "managed.h"
#include "pace.h"

static CUresult waited(CUresult result) {
    if (result == CUDA_SUCCESS) {
        pace_done();
        pools_settle();
        handles_settle();
        managed_settle();
    }
    return result;
}

EXPORT CUresult cuCtxSynchronize(void) {
    return waited(REAL(cuCtxSynchronize)());
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
    return waited(REAL(cuCtxSynchronize_v2)(context));
}

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    return waited(REAL(cuStreamSynchronize)(stream));
}

EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return waited(REAL(cuStreamSynchronize_ptsz)(stream));
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
    return waited(REAL(cuEventSynchronize)(event));
}
